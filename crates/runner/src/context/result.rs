//! The result of a job as its context wrote it: masked, bounded and checked.

use std::sync::Arc;

use serde_json::value::RawValue;
use windlass_core::Json;
use windlass_core::limit::RESULT_BYTES_MAX;

use crate::mask::Mask;

/// Longer results are prepared on a thread of their own: the longest ones take so long that others
/// would notice.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResultData {
    Absent,
    TooLarge,
    Fits(Json),
}

/// Prepares a result without keeping others from running.
pub(super) async fn prepare_aside(mask: &Arc<Mask>, data: Option<&RawValue>) -> ResultData {
    let Some(long) = data.filter(|data| data.get().len() > AT_ONCE_BYTES_MAX) else {
        return prepare(mask, data);
    };
    let (shared, long) = (Arc::clone(mask), long.to_owned());
    let prepared = tokio::task::spawn_blocking(move || prepare(&shared, Some(&long))).await;
    // No such thread is started any more when the runtime stops.
    prepared.unwrap_or_else(|_| prepare(mask, data))
}

pub(super) fn prepare(mask: &Mask, data: Option<&RawValue>) -> ResultData {
    let Some(data) = data else { return ResultData::Absent };
    let masked = mask.json(data.get());
    if masked.len() > RESULT_BYTES_MAX {
        return ResultData::TooLarge;
    }
    Json::parse(masked.into_owned()).map_or(ResultData::Absent, ResultData::Fits)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    fn text_of(bytes: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap()
    }

    #[test]
    fn long_results_are_prepared_aside_and_short_ones_at_once() {
        let mask: Arc<Mask> = Arc::default();
        let (short, long) = (text_of(10), text_of(AT_ONCE_BYTES_MAX));
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let at_once = prepare_aside(&mask, Some(&short)).now_or_never();
            assert_eq!(at_once, Some(prepare(&mask, Some(&short))));
            let mut aside = Box::pin(prepare_aside(&mask, Some(&long)));
            assert_eq!((&mut aside).now_or_never(), None, "its thread is busy");
            drop(release);
            assert_eq!(aside.await, prepare(&mask, Some(&long)));
            assert!(busy.await.unwrap().is_err());
        });
    }

    #[test]
    fn results_are_bounded() {
        let mask = Mask::default();
        assert_eq!(prepare(&mask, None), ResultData::Absent);
        assert_eq!(prepare(&mask, Some(&text_of(RESULT_BYTES_MAX))), ResultData::TooLarge);
    }
}

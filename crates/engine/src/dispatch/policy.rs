//! How a job is treated: by its own settings, then its handler's, its type's, and the daemon's.

use std::time::Duration;

use windlass_core::store::{Error, TypedJob};
use windlass_core::{Handler, Job, RetryPolicy, TypeSettings};

use crate::options::Options;
use crate::shared::Shared;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Policy {
    pub retry: RetryPolicy,
    pub timeout: Duration,
    /// Stored jobs may ask for more, if it was lowered since.
    pub timeout_max: Duration,
    pub retention: Duration,
}

impl Policy {
    pub(crate) fn of(
        handler: Option<&Handler>,
        settings: &TypeSettings,
        options: &Options,
    ) -> Policy {
        let own = handler.map(|handler| &handler.spec.options);
        Policy {
            retry: own
                .and_then(|own| own.retry.clone())
                .or_else(|| settings.retry.clone())
                .unwrap_or_else(|| options.retry.clone()),
            timeout: own
                .and_then(|own| own.timeout)
                .or(settings.timeout)
                .unwrap_or(options.timeout)
                .min(options.maxima.timeout),
            timeout_max: options.maxima.timeout,
            retention: settings
                .retention
                .unwrap_or(options.retention)
                .min(options.maxima.retention),
        }
    }

    /// The policy of a job that does not run in this daemon, by its type as it is now.
    pub(crate) async fn of_typed(shared: &Shared, typed: &TypedJob) -> Result<Policy, Error> {
        let TypedJob { job, settings, handler } = typed;
        let handler = match handler {
            Some(version) => {
                shared.catalogue.get(shared.store.as_ref(), &job.key, *version).await?
            }
            None => None,
        };
        Ok(Policy::of(handler.as_deref(), settings, &shared.options))
    }

    /// The time limit of one attempt of `job`.
    pub(crate) fn timeout_of(&self, job: &Job) -> Duration {
        job.timeout.unwrap_or(self.timeout).min(self.timeout_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::handler::{HandlerOptions, HandlerSpec, Lang};
    use windlass_core::{HandlerId, NewJob, Payload, Timestamp, TypeKey};

    #[test]
    fn a_handlers_own_options_win_over_the_types_settings_over_the_defaults() {
        let seconds = Duration::from_secs;
        let options = Options::new("data".into());
        let mut settings = TypeSettings::default();
        let plain = Policy::of(None, &settings, &options);
        assert_eq!((plain.timeout, plain.retention), (options.timeout, options.retention));

        settings.timeout = Some(seconds(7));
        settings.retention = Some(seconds(9));
        let by_type = Policy::of(None, &settings, &options);
        assert_eq!((by_type.timeout, by_type.retention), (seconds(7), seconds(9)));

        let own = HandlerOptions { timeout: Some(seconds(3)), ..HandlerOptions::default() };
        let spec = HandlerSpec { options: own, ..HandlerSpec::new(Lang::Sh, "true") };
        let handler = Handler {
            id: HandlerId::new(1).unwrap(),
            key: TypeKey::new("a", "t").unwrap(),
            created_at: Timestamp(0),
            spec,
        };
        assert_eq!(Policy::of(Some(&handler), &settings, &options).timeout, seconds(3));
    }

    #[test]
    fn stored_times_above_their_maxima_are_lowered() {
        let seconds = Duration::from_secs;
        let mut options = Options::new("data".into());
        options.maxima.timeout = seconds(5);
        options.maxima.retention = seconds(6);
        let settings = TypeSettings {
            timeout: Some(seconds(50)),
            retention: Some(seconds(60)),
            ..TypeSettings::default()
        };
        let policy = Policy::of(None, &settings, &options);
        assert_eq!((policy.timeout, policy.retention), (seconds(5), seconds(6)));
        let (id, key) = (HandlerId::new(1).unwrap(), TypeKey::new("a", "t").unwrap());
        let new = NewJob::new(id, key, Payload::Inline("".into()), Timestamp(0));
        let job = Job::queued(NewJob { timeout: Some(seconds(70)), ..new });
        assert_eq!(policy.timeout_of(&job), seconds(5));
    }
}

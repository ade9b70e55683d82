//! Runs many operations in a row: if the database refuses one of them, the others still run.

use crate::database::DbError;

/// Collects refusals; keeps the first one.
#[derive(Debug, Default)]
pub(super) struct Refusals(Option<DbError>);

impl Refusals {
    /// The result, or `None` if it was refused. An unavailable database is an error.
    pub(super) fn skip_refused<T>(
        &mut self,
        done: Result<T, DbError>,
    ) -> Result<Option<T>, DbError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(away @ DbError::Away(_)) => Err(away),
            Err(refused) => {
                self.0.get_or_insert(refused);
                Ok(None)
            }
        }
    }

    pub(super) fn into_result(self) -> Result<(), DbError> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absence_ends_all() {
        let refused = |text: &str| Err::<(), _>(DbError::Refused(text.to_owned()));
        let mut refusals = Refusals::default();
        assert_eq!(refusals.skip_refused(Ok(5)), Ok(Some(5)));
        assert_eq!(refusals.skip_refused(refused("first")), Ok(None));
        assert_eq!(refusals.skip_refused(refused("second")), Ok(None));
        let away = DbError::Away("gone".to_owned());
        assert_eq!(refusals.skip_refused(Err::<(), _>(away.clone())), Err(away));
        assert_eq!(refusals.into_result(), refused("first"));
        assert_eq!(Refusals::default().into_result(), Ok(()));
    }
}

//! The changelog: a copy of each node, queue or balance document after a change.

use mongodb::bson::{Document, doc};

use super::Database;

impl Database {
    /// Records the new state of a document. The change itself has already been made, so an error is
    /// only logged.
    pub(crate) async fn changelog(&self, collection: &str, document: Document, deleted: bool) {
        let entry = entry(collection, document, deleted);
        if let Err(error) = self.insert("changelog", &entry).await {
            tracing::warn!(
                collection,
                "a change was made and could not be written to the changelog: {error}"
            );
        }
    }

    async fn changelog_current(&self, collection: &str, filter: Document) {
        match self.one(self.collection(collection).find_one(filter)).await {
            Ok(Some(document)) => self.changelog(collection, document, false).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    collection,
                    "a change was made and could not be written to the changelog: {error}"
                );
            }
        }
    }

    pub(super) async fn changelog_node(&self, filter: Document) {
        self.changelog_current("nodes", filter).await;
    }

    pub(super) async fn changelog_queue(&self, filter: Document) {
        self.changelog_current("queues", filter).await;
    }
}

/// The document with its `_id` as `id`, and the name of its collection.
fn entry(collection: &str, mut document: Document, deleted: bool) -> Document {
    let mut entry = doc! { "collection": collection };
    if let Some(id) = document.remove("_id") {
        entry.insert("id", id);
    }
    entry.extend(document);
    entry.insert("collection", collection);
    if deleted {
        entry.insert("deleted", true);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_the_document_with_its_id_moved() {
        let document = doc! { "_id": 5, "name": "a", "collection": "mine" };
        let wanted = doc! { "collection": "queues", "id": 5, "name": "a" };
        assert_eq!(entry("queues", document.clone(), false), wanted);
        let gone = entry("queues", document, true);
        assert!(gone.get_bool("deleted").unwrap());
    }
}

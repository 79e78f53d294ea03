use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A value that can be replaced while others use it. Every clone is the same place.
pub struct Reloadable<T>(Arc<watch::Sender<Arc<T>>>);

impl<T> Reloadable<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(value))))
    }

    /// The value of this moment. Whoever holds it keeps it, also when it is replaced.
    pub fn get(&self) -> Arc<T> {
        self.0.borrow().clone()
    }

    pub fn replace(&self, value: T) {
        self.0.send_replace(Arc::new(value));
    }
}

impl<T> Clone for Reloadable<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Reloadable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reloadable").field(&self.get()).finish()
    }
}

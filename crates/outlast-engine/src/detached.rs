//! Store calls that outlive their caller. A call and the announcement of its result are one future, which runs in the
//! caller's task. If the caller goes away first, the future moves to a task of its own and ends there, so that a commit is
//! always announced by name and no waiter has to search for what changed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Tasks whose caller has gone. The store bounds how many there are: it refuses calls beyond its queue at once.
#[derive(Default)]
pub(crate) struct DetachedCalls {
    tasks: Mutex<JoinSet<()>>,
}

impl DetachedCalls {
    /// Runs a store call together with the announcement of its result.
    pub(crate) async fn commit<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.guard(call, drop).await
    }

    /// `unwanted` gets the result if the caller has gone.
    pub(crate) fn guard<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Future<Output = T> + Send + 'static,
        unwanted: impl FnOnce(T) + Send + 'static,
    ) -> DetachOnDrop<T, impl FnOnce(T) + Send + 'static> {
        DetachOnDrop { call: Some((Box::pin(call), unwanted)), calls: Arc::clone(self) }
    }

    /// Runs to its end, also while the engine stops. Outside of a runtime it is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &runtime);
    }

    /// Waits for all of them.
    pub(crate) async fn finish(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            if tasks.is_empty() {
                return;
            }
            // They may start others.
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// A call in its caller's task, which goes on in a task of its own when it is dropped.
pub(crate) struct DetachOnDrop<T: Send + 'static, F: FnOnce(T) + Send + 'static> {
    /// `None` once it has ended.
    call: Option<(BoxFuture<'static, T>, F)>,
    calls: Arc<DetachedCalls>,
}

/// The future inside is pinned on the heap.
impl<T: Send + 'static, F: FnOnce(T) + Send + 'static> Unpin for DetachOnDrop<T, F> {}

impl<T: Send + 'static, F: FnOnce(T) + Send + 'static> Future for DetachOnDrop<T, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some((call, _)) = &mut self.call else {
            return Poll::Pending;
        };
        let result = std::task::ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static, F: FnOnce(T) + Send + 'static> Drop for DetachOnDrop<T, F> {
    fn drop(&mut self) {
        if let Some((call, unwanted)) = self.call.take() {
            self.calls.spawn(async move { unwanted(call.await) });
        }
    }
}

//! A loop for queues that are polled: permits first, then as many jobs.
//!
//! Why it is here: written by hand it starves others. Whoever waits for permits states demand, and the budget is shared
//! among those who do; a poller of an empty queue would state it for ever, and be given permits that run nothing. So
//! after an empty fetch it states none for a while, and then for one job, until it has found one.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::admission::Group;
use crate::error::AcquireError;
use crate::permit::Permit;
use crate::warning;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs jobs of one queue under permits of one group. Made by [`Group::poller`].
///
/// ```no_run
/// # use queue_client::{AcquireError, QueueClient};
/// # async fn due() -> Result<usize, String> { Ok(0) }
/// # async fn fetch(most: usize) -> Result<Vec<u64>, String> { Ok(vec![]) }
/// # async fn run(job: u64) {}
/// # async fn example(client: QueueClient) -> Result<(), AcquireError> {
/// let nightly = client.semaphore("account:42").group("nightly");
/// nightly.poller(10).looking_first(due, fetch, run).await
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a poller does nothing until poll or looking_first is called"]
pub struct Poller {
    group: Group,
    most: usize,
    pause_max: Duration,
    news: Arc<Notify>,
}

impl Group {
    /// Fetches and runs jobs until the client is [drained](crate::QueueClient::drain): takes permits, calls
    /// `fetch(permits)` for at most so many jobs, and runs each in a task of its own that holds its permit. At most `most`
    /// jobs run at once. See [`Poller::poll`].
    ///
    /// # Errors
    ///
    /// As [`Poller::poll`].
    ///
    /// # Cancel safety
    ///
    /// As [`Poller::poll`].
    pub async fn poll<J, E: Display, Fetched, Run>(
        &self,
        most: usize,
        fetch: impl FnMut(usize) -> Fetched,
        run: impl FnMut(J) -> Run,
    ) -> Result<(), AcquireError>
    where
        Fetched: Future<Output = Result<Vec<J>, E>>,
        Run: Future<Output = ()> + Send + 'static,
    {
        self.poller(most).poll(fetch, run).await
    }

    /// A poller of which at most `most` jobs run at once (at least 1).
    pub fn poller(&self, most: usize) -> Poller {
        let news = Arc::new(Notify::new());
        Poller { group: self.clone(), most: most.max(1), pause_max: PAUSE_MAX, news }
    }
}

impl Poller {
    /// An empty queue is looked at again after this long at most. Default: 5 s.
    pub fn pause(mut self, most: Duration) -> Self {
        self.pause_max = most;
        self
    }

    /// Each [`notify_one`](Notify::notify_one) ends the pause: for queues that tell of new jobs, by `LISTEN` or in the
    /// process.
    pub fn woken_by(mut self, news: Arc<Notify>) -> Self {
        self.news = news;
        self
    }

    /// Fetches and runs jobs until the client is [drained](crate::QueueClient::drain).
    ///
    /// - **`fetch(n)`** is called with `n` permits at hand and takes at most `n` jobs off the queue. When it finds none,
    ///   the permits go back and no demand is stated during a pause, from 0.1 s to [`pause`](Self::pause), with jitter;
    ///   then one permit is asked for, and twice as many with each fetch that finds as many jobs as it may.
    /// - **Its errors** are waited through like outages: the pause grows to 10 s, and the first error in a row is a
    ///   warning in the log, or on standard error where there is none.
    /// - **`run(job)`** is a task of its own. Its permit is released when it ends, or panics, which is an error in the
    ///   log; what it has to say of success it says to its queue.
    /// - **Draining** ends it: it fetches no more, waits for the jobs that run, and returns `Ok`.
    ///
    /// # Errors
    ///
    /// What waiting for a permit does not cure, except that the client drains; see [`AcquireError`]. Jobs that run go on.
    ///
    /// # Cancel safety
    ///
    /// Permits at hand go back, jobs that run go on with theirs. A `fetch` under way is dropped with it: if that can lose
    /// jobs that it has taken, drain instead.
    pub async fn poll<J, E: Display, Fetched, Run>(
        self,
        fetch: impl FnMut(usize) -> Fetched,
        run: impl FnMut(J) -> Run,
    ) -> Result<(), AcquireError>
    where
        Fetched: Future<Output = Result<Vec<J>, E>>,
        Run: Future<Output = ()> + Send + 'static,
    {
        self.work(None::<fn() -> std::future::Ready<Result<usize, E>>>, fetch, run).await
    }

    /// As [`poll`](Self::poll), but looks first how many jobs are due, by a query that takes none: so an empty queue never
    /// asks for a permit, and the demand that is stated is what is queued.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll); errors of `due` are treated as those of `fetch`.
    ///
    /// # Cancel safety
    ///
    /// As [`poll`](Self::poll).
    pub async fn looking_first<J, E: Display, Due, Fetched, Run>(
        self,
        due: impl FnMut() -> Due,
        fetch: impl FnMut(usize) -> Fetched,
        run: impl FnMut(J) -> Run,
    ) -> Result<(), AcquireError>
    where
        Due: Future<Output = Result<usize, E>>,
        Fetched: Future<Output = Result<Vec<J>, E>>,
        Run: Future<Output = ()> + Send + 'static,
    {
        self.work(Some(due), fetch, run).await
    }

    async fn work<J, E: Display, Due, Fetched, Run>(
        self,
        mut due: Option<impl FnMut() -> Due>,
        mut fetch: impl FnMut(usize) -> Fetched,
        mut run: impl FnMut(J) -> Run,
    ) -> Result<(), AcquireError>
    where
        Due: Future<Output = Result<usize, E>>,
        Fetched: Future<Output = Result<Vec<J>, E>>,
        Run: Future<Output = ()> + Send + 'static,
    {
        let mut pace = Pace::new(self.pause_max);
        let mut running = Running::default();
        while self.group.handle().shared.stopped().is_none() {
            let room = running.room(self.most).await;
            let wanted = match &mut due {
                Some(due) => self.told(&mut pace, due().await),
                None => Some(pace.wanted),
            };
            let found = match wanted {
                None | Some(0) => 0,
                Some(wanted) => {
                    let permits = match self.group.acquire_up_to(wanted.min(room)).await {
                        Ok(permits) => permits,
                        Err(AcquireError::Draining) => break,
                        Err(error) => return Err(error),
                    };
                    let asked = permits.len();
                    let jobs = self.told(&mut pace, fetch(asked).await).unwrap_or_default();
                    let found = jobs.len();
                    self.start(&mut running, permits, jobs, &mut run).await?;
                    pace.fetched(asked, found);
                    found
                }
            };
            if found == 0 {
                self.rest(pace.pause()).await;
            }
        }
        match self.group.handle().shared.stopped() {
            None | Some(AcquireError::Draining) => {
                running.end().await;
                Ok(())
            }
            Some(reason) => Err(reason),
        }
    }

    /// Each job gets a permit; those that `fetch` brought beyond what it was asked for wait for theirs.
    async fn start<J, Run: Future<Output = ()> + Send + 'static>(
        &self,
        running: &mut Running,
        permits: Vec<Permit>,
        jobs: Vec<J>,
        run: &mut impl FnMut(J) -> Run,
    ) -> Result<(), AcquireError> {
        let mut permits = permits.into_iter();
        for job in jobs {
            let permit = match permits.next() {
                Some(permit) => permit,
                None => self.group.acquire().await?,
            };
            running.start(permit, run(job));
        }
        Ok(())
    }

    /// What was found, or nothing and a line in the log.
    fn told<T, E: Display>(&self, pace: &mut Pace, found: Result<T, E>) -> Option<T> {
        match found {
            Ok(found) => {
                if std::mem::take(&mut pace.failing) {
                    let (key, group) = (self.group.key(), self.group.name());
                    warning::guarded(|| tracing::info!(key, group, "jobs are fetched again"));
                }
                Some(found)
            }
            Err(error) => {
                if !std::mem::replace(&mut pace.failing, true) {
                    let (key, group) = (self.group.key(), self.group.name());
                    let text = format!(
                        "jobs of {key:?}, group {group:?} can't be fetched, it is tried again: {error}"
                    );
                    warning::warn(self.group.handle().shared.client.aloud, &text);
                }
                None
            }
        }
    }

    /// Waits for news, for the end of the pause, or for the end of all.
    async fn rest(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.news.notified() => {}
            () = self.group.handle().shared.until_stopped() => {}
        }
    }
}

/// How many jobs are asked for, and how long an empty queue is left alone.
#[derive(Debug)]
struct Pace {
    wanted: usize,
    pause: Duration,
    pause_max: Duration,
    failing: bool,
}

impl Pace {
    fn new(pause_max: Duration) -> Self {
        Self { wanted: 1, pause: PAUSE_MIN.min(pause_max), pause_max, failing: false }
    }

    fn fetched(&mut self, asked: usize, found: usize) {
        self.wanted = if found >= asked { self.wanted.max(asked).saturating_mul(2) } else { 1 };
        if found > 0 {
            self.pause = PAUSE_MIN.min(self.pause_max);
        }
    }

    /// A pause of half to all of what it is at most, so that pollers do not meet; the next one is twice as long.
    fn pause(&mut self) -> Duration {
        let most = if self.failing { self.pause_max.max(crate::driver::RETRY_MAX) } else { self.pause_max };
        let pause = self.pause.min(most);
        self.pause = (pause * 2).min(most);
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }
}

/// Jobs that run. Dropped, they go on.
#[derive(Default)]
struct Running(JoinSet<()>);

impl Running {
    fn start(&mut self, permit: Permit, job: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            job.await;
            drop(permit);
        });
    }

    /// Waits until fewer than `most` run, and returns how many more may.
    async fn room(&mut self, most: usize) -> usize {
        while let Some(ended) = self.0.try_join_next() {
            tell(ended);
        }
        while self.0.len() >= most {
            self.ended().await;
        }
        most - self.0.len()
    }

    async fn end(&mut self) {
        while !self.0.is_empty() {
            self.ended().await;
        }
    }

    async fn ended(&mut self) {
        if let Some(ended) = self.0.join_next().await {
            tell(ended);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

fn tell(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        warning::guarded(|| tracing::error!(%error, "a job panicked: its permit is released"));
    }
}

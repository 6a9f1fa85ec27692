//! The loop for queues that are polled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_client::{AcquireError, CallError, Endpoint};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::scripted::{Asked, Holder, client, waits};

/// A queue in memory that counts how it is used.
#[derive(Clone, Default)]
struct Queue {
    jobs: Arc<Mutex<VecDeque<u64>>>,
    fetches: Arc<Mutex<Vec<usize>>>,
    ran: Arc<Mutex<Vec<u64>>>,
}

impl Queue {
    fn push(&self, jobs: impl IntoIterator<Item = u64>) {
        self.jobs.lock().unwrap().extend(jobs);
    }

    async fn fetch(&self, most: usize) -> Result<Vec<u64>, String> {
        self.fetches.lock().unwrap().push(most);
        let mut jobs = self.jobs.lock().unwrap();
        let most = most.min(jobs.len());
        Ok(jobs.drain(..most).collect())
    }

    fn run(&self, job: u64) -> impl Future<Output = ()> + Send + 'static {
        let ran = self.ran.clone();
        async move { ran.lock().unwrap().push(job) }
    }

    fn ran(&self) -> Vec<u64> {
        self.ran.lock().unwrap().clone()
    }
}

/// Grants what is asked for, and confirms what is said; returns at the next request with how much it asks for.
async fn next_request(holder: &mut Holder) -> (u64, Asked) {
    loop {
        let asked = holder.next().await;
        let wanted = asked.demand().iter().map(|(_, count)| count).sum();
        if asked.endpoint == Endpoint::Request && wanted > 0 {
            return (wanted, asked);
        }
        let confirmed = holder.confirm(&asked);
        asked.answer(confirmed);
    }
}

async fn grant(holder: &mut Holder) -> u64 {
    let (wanted, asked) = next_request(holder).await;
    let id = format!("g{}", holder.round);
    let granted = holder.grant(&id, "", wanted);
    asked.answer(granted);
    wanted
}

#[tokio::test(start_paused = true)]
async fn an_empty_queue_states_no_demand_for_a_while() {
    let (client, semaphore, mut holder) = client();
    let queue = Queue::default();
    let poll = tokio::spawn({
        let (queue, group) = (queue.clone(), semaphore.group(""));
        async move { group.poll(8, |most| queue.fetch(most), |job| queue.run(job)).await }
    });
    let mut asked_at = Vec::new();
    for _ in 0..10 {
        assert_eq!(grant(&mut holder).await, 1, "no more than one job is hoped for");
        asked_at.push(Instant::now());
    }
    let pauses: Vec<Duration> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(50)), "{pauses:?}");
    assert!(pauses[8] >= Duration::from_millis(2_500), "{pauses:?}");

    let draining = tokio::spawn(async move { client.drain().await });
    while !draining.is_finished() {
        match tokio::time::timeout(Duration::from_secs(1), holder.next()).await {
            Ok(asked) => {
                let confirmed = holder.confirm(&asked);
                asked.answer(confirmed);
            }
            Err(_) => holder.rests().await,
        }
    }
    draining.await.unwrap().unwrap();
    poll.await.unwrap().unwrap();
}

/// A holder that grants all that is asked for, until the end of the test; counts the requests that ask.
fn generous(mut holder: Holder) -> Arc<AtomicUsize> {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        loop {
            grant(&mut holder).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    requests
}

/// Lets the paused clock go on until it is so.
async fn until(condition: impl Fn() -> bool) {
    let seconds = tokio::time::timeout(Duration::from_secs(3600), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    seconds.await.expect("it happens some day");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_worked_through_with_so_many_at_once() {
    let (client, semaphore, holder) = client();
    let requests = generous(holder);
    let queue = Queue::default();
    queue.push(0..40);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let run = |job| {
        let (run, running, most) = (queue.run(job), running.clone(), most.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::Relaxed);
            run.await;
        }
    };
    let group = semaphore.group("");
    let poll = group.poll(4, |most| queue.fetch(most), run);
    let drain = async {
        until(|| queue.ran().len() == 40).await;
        client.drain().await
    };
    let (polled, drained) = tokio::join!(poll, drain);
    polled.unwrap();
    drained.unwrap();
    assert_eq!(queue.ran(), Vec::from_iter(0..40));
    assert_eq!(most.load(Ordering::Relaxed), 4);
    let fetches = queue.fetches.lock().unwrap().clone();
    assert_eq!(fetches[..2], [1, 2], "it begins with one, and asks for more while there are more");
    assert!(requests.load(Ordering::Relaxed) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_gives_its_permit_back_and_the_next_ones_run() {
    let (client, semaphore, holder) = client();
    generous(holder);
    let queue = Queue::default();
    queue.push(0..3);
    let run = |job| {
        let run = queue.run(job);
        async move {
            assert!(job != 1, "a fault of the job");
            run.await;
        }
    };
    let group = semaphore.group("");
    let poll = group.poll(1, |most| queue.fetch(most), run);
    let drain = async {
        until(|| queue.ran().len() == 2).await;
        client.drain().await
    };
    let (polled, drained) = tokio::join!(poll, drain);
    polled.unwrap();
    drained.unwrap();
    assert_eq!(queue.ran(), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn errors_of_fetch_are_waited_through() {
    let (client, semaphore, holder) = client();
    let requests = generous(holder);
    let queue = Queue::default();
    queue.push(0..2);
    let failures = AtomicUsize::new(0);
    let fetch = async |most| {
        if failures.fetch_add(1, Ordering::Relaxed) < 10 {
            return Err("the database is away".to_owned());
        }
        queue.fetch(most).await
    };
    let group = semaphore.group("");
    let poll = group.poll(1, fetch, |job| queue.run(job));
    let began = Instant::now();
    let drain = async {
        until(|| queue.ran().len() == 2).await;
        client.drain().await
    };
    let (polled, drained) = tokio::join!(poll, drain);
    polled.unwrap();
    drained.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(10), "it pauses between them");
    assert!(requests.load(Ordering::Relaxed) <= 20);
}

#[tokio::test(start_paused = true)]
async fn who_looks_first_asks_for_no_permit_while_the_queue_is_empty() {
    let (_client, semaphore, holder) = client();
    let requests = generous(holder);
    let (queue, news) = (Queue::default(), Arc::new(Notify::new()));
    tokio::spawn({
        let (queue, news) = (queue.clone(), news.clone());
        let poller = semaphore.group("").poller(8).pause(Duration::from_secs(3600)).woken_by(news);
        async move {
            let due = async || Ok::<_, String>(queue.jobs.lock().unwrap().len());
            poller.looking_first(due, |most| queue.fetch(most), |job| queue.run(job)).await
        }
    });
    tokio::time::sleep(Duration::from_secs(12 * 3600)).await;
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    queue.push(0..5);
    news.notify_one();
    let told = Instant::now();
    until(|| queue.ran().len() == 5).await;
    assert!(told.elapsed() < Duration::from_secs(5), "news end the pause");
    assert_eq!(*queue.fetches.lock().unwrap(), [5], "as many as are due");
}

#[tokio::test(start_paused = true)]
async fn jobs_go_on_when_the_loop_is_dropped_or_fenced() {
    let (client, semaphore, mut holder) = client();
    let queue = Queue::default();
    queue.push(0..2);
    let end = Arc::new(Notify::new());
    let run = |job| {
        let (run, end) = (queue.run(job), end.clone());
        async move {
            end.notified().await;
            run.await;
        }
    };
    let group = semaphore.group("");
    {
        let mut poll = Box::pin(group.poll(2, |_| queue.fetch(1), run));
        assert!(waits(&mut poll).await);
        let served = async {
            grant(&mut holder).await;
            next_request(&mut holder).await.1
        };
        let request = tokio::select! {
            request = served => request,
            ended = &mut poll => panic!("{ended:?}"),
        };
        request.answer(Err(CallError::Fenced { generation: Some(9) }));
        assert!(matches!(poll.await, Err(AcquireError::Fenced { .. })));
    }
    end.notify_one();
    until(|| queue.ran() == [0]).await;
    drop(client);
}

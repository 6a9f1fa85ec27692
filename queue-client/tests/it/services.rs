//! Tower services as transports.

use std::time::Duration;

use queue_client::wire::TakenOver;
use queue_client::{Answer, Ask, CallError, QueueClient, ServiceTransport};
use tokio::sync::{mpsc, oneshot};
use tower::timeout::TimeoutLayer;
use tower::{Layer, service_fn};

use crate::scripted::waits;

type Asked = (Ask, oneshot::Sender<Result<Answer, CallError>>);

#[tokio::test(start_paused = true)]
async fn layers_go_around_a_service_and_their_errors_are_outages() {
    let (calls, mut asked) = mpsc::unbounded_channel::<Asked>();
    let service = service_fn(move |ask: Ask| {
        let (answer, answered) = oneshot::channel();
        calls.send((ask, answer)).unwrap();
        async { answered.await.unwrap() }
    });
    let service = TimeoutLayer::new(Duration::from_secs(5)).layer(service);
    let client = QueueClient::builder().transport(ServiceTransport::new(service)).build().unwrap();

    let semaphore = client.semaphore("k");
    let mut acquire = Box::pin(semaphore.acquire(""));
    assert!(waits(&mut acquire).await);
    let (first, _unanswered) = asked.recv().await.unwrap();
    let (again, answer) = asked.recv().await.unwrap();
    let (Ask::Call { message: first, .. }, Ask::Call { key, message, .. }) = (&first, &again) else {
        panic!("calls of the semaphore")
    };
    assert_eq!((key.as_str(), &message.demand[0].group), ("k", &first.demand[0].group), "after the timeout");

    // An error of the transport is known behind the layer.
    answer.send(Err(CallError::Fenced { generation: None })).unwrap();
    assert!(matches!(acquire.await, Err(queue_client::AcquireError::Fenced { .. })));

    let mut taking = Box::pin(client.take_over());
    assert!(waits(&mut taking).await);
    let (ask, answer) = asked.recv().await.unwrap();
    assert!(matches!(ask, Ask::TakeOver { client_id, .. } if client_id == client.client_id()));
    answer.send(Ok(Answer::TakenOver(TakenOver::default()))).unwrap();
    taking.await.unwrap();
}

//! A collector of OpenTelemetry in the test's own process, for OTLP by gRPC and by HTTP on one port.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};

/// The collector; it ends with this value.
#[derive(Debug)]
#[must_use = "the collector ends when this value is dropped"]
pub struct Collector {
    url: String,
    received: Received,
    _server: AbortOnDropHandle<()>,
}

/// A span as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub name: String,
    /// The trace, in hexadecimal.
    pub trace: String,
    /// Its id, in hexadecimal.
    pub id: String,
    /// The id of the span that it is part of; empty: of none.
    pub parent: String,
    /// Ids of spans that it is linked to.
    pub links: BTreeSet<String>,
    /// What is said of it.
    pub attributes: BTreeMap<String, String>,
    /// What is said of the process.
    pub resource: BTreeMap<String, String>,
}

/// A log as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The text.
    pub body: String,
    /// The trace that it belongs to, in hexadecimal; empty: none.
    pub trace: String,
    /// What is said of it.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
struct Received(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    spans: Vec<Span>,
    logs: Vec<Log>,
    /// The latest value of each metric, all of its attributes taken together.
    metrics: BTreeMap<String, f64>,
    credentials: BTreeSet<String>,
}

impl Collector {
    /// Starts on a free port of loopback.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn start() -> Self {
        let received = Received::default();
        let grpc = tonic::service::Routes::new(TraceServiceServer::new(received.clone()))
            .add_service(MetricsServiceServer::new(received.clone()))
            .add_service(LogsServiceServer::new(received.clone()));
        let http = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/v1/logs", post(logs))
            .with_state(received.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = grpc.into_axum_router().merge(http);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, received, _server: AbortOnDropHandle::new(server) }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Spans that were sent so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.received.lock(|inner| inner.spans.clone())
    }

    /// Logs that were sent so far.
    #[must_use]
    pub fn logs(&self) -> Vec<Log> {
        self.received.lock(|inner| inner.logs.clone())
    }

    /// The latest value of a metric: the sum over its attributes; of a histogram, how many there were.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.received.lock(|inner| inner.metrics.get(name).copied())
    }

    /// What came in the header `authorization`.
    #[must_use]
    pub fn credentials(&self) -> BTreeSet<String> {
        self.received.lock(|inner| inner.credentials.clone())
    }
}

impl Received {
    fn lock<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn heard(&self, headers: &HeaderMap) {
        let credentials = headers.get("authorization").and_then(|value| value.to_str().ok());
        self.lock(|inner| inner.credentials.extend(credentials.map(str::to_owned)));
    }

    fn take_traces(&self, request: ExportTraceServiceRequest) {
        let spans = request.resource_spans.into_iter().flat_map(|of| {
            let resource = of_resource(of.resource);
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.map(move |span| Span {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                attributes: attributes(span.attributes),
                resource: resource.clone(),
            })
        });
        self.lock(|inner| inner.spans.extend(spans));
    }

    fn take_logs(&self, request: ExportLogsServiceRequest) {
        let scopes = request.resource_logs.into_iter().flat_map(|of| of.scope_logs);
        let logs = scopes.flat_map(|scope| scope.log_records).map(|record| Log {
            body: text(record.body),
            trace: hex(&record.trace_id),
            attributes: attributes(record.attributes),
        });
        self.lock(|inner| inner.logs.extend(logs));
    }

    fn take_metrics(&self, request: ExportMetricsServiceRequest) {
        let scopes = request.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
        let metrics = scopes.flat_map(|scope| scope.metrics);
        let values = metrics.map(|metric| (metric.name, metric.data.map_or(0.0, total)));
        self.lock(|inner| inner.metrics.extend(values));
    }
}

fn total(data: Data) -> f64 {
    let numbers = |points: Vec<opentelemetry_proto::tonic::metrics::v1::NumberDataPoint>| {
        let value = |value| match value {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        };
        points.into_iter().filter_map(|point| point.value).map(value).sum()
    };
    match data {
        Data::Sum(sum) => numbers(sum.data_points),
        Data::Gauge(gauge) => numbers(gauge.data_points),
        Data::Histogram(histogram) => histogram.data_points.iter().map(|point| point.count as f64).sum(),
        Data::ExponentialHistogram(_) | Data::Summary(_) => f64::NAN,
    }
}

fn of_resource(resource: Option<Resource>) -> BTreeMap<String, String> {
    attributes(resource.map(|resource| resource.attributes).unwrap_or_default())
}

fn attributes(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn traces(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_traces(ExportTraceServiceRequest::decode(body).expect("traces in protobuf"));
}

async fn metrics(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_metrics(ExportMetricsServiceRequest::decode(body).expect("metrics in protobuf"));
}

async fn logs(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_logs(ExportLogsServiceRequest::decode(body).expect("logs in protobuf"));
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.heard(&metadata.into_headers());
        self.take_traces(request);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Received {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.heard(&metadata.into_headers());
        self.take_metrics(request);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Received {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.heard(&metadata.into_headers());
        self.take_logs(request);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

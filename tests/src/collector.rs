//! A collector of OpenTelemetry in the test's own process, for OTLP by gRPC and by HTTP on one port.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use flate2::read::GzDecoder;
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
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::{Request, Response, Status};

use crate::Certificate;
use crate::encrypted::Encrypted;

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

/// A metric with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The metric.
    pub name: String,
    /// Its attributes.
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
    series: BTreeSet<Series>,
    /// By header, what came in it.
    headers: BTreeMap<&'static str, BTreeSet<String>>,
}

/// The headers that are remembered.
const HEADERS: [&str; 3] = ["authorization", "content-encoding", "grpc-encoding"];

impl Collector {
    /// Starts on a free port of loopback.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// As [`start`](Self::start), for `https` with this certificate.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn start_encrypted(certificate: &Certificate) -> Self {
        Self::start_with(Some(certificate)).await
    }

    async fn start_with(certificate: Option<&Certificate>) -> Self {
        let received = Received::default();
        let traces_by_grpc = TraceServiceServer::new(received.clone()).accept_compressed(Gzip);
        let metrics_by_grpc = MetricsServiceServer::new(received.clone()).accept_compressed(Gzip);
        let logs_by_grpc = LogsServiceServer::new(received.clone()).accept_compressed(Gzip);
        let grpc = tonic::service::Routes::new(traces_by_grpc);
        let grpc = grpc.add_service(metrics_by_grpc).add_service(logs_by_grpc);
        let http = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/v1/logs", post(logs))
            .with_state(received.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = grpc.into_axum_router().merge(http);
        let (url, server) = match certificate {
            None => {
                let serve = async { axum::serve(listener, router).await.expect("it serves") };
                (format!("http://{address}"), tokio::spawn(serve))
            }
            Some(certificate) => {
                let listener = Encrypted::new(listener, certificate);
                let serve = async { axum::serve(listener, router).await.expect("it serves") };
                (format!("https://{address}"), tokio::spawn(serve))
            }
        };
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

    /// The metrics that were sent so far, with all of their attributes.
    #[must_use]
    pub fn series(&self) -> BTreeSet<Series> {
        self.received.lock(|inner| inner.series.clone())
    }

    /// What came in the header `authorization`.
    #[must_use]
    pub fn credentials(&self) -> BTreeSet<String> {
        self.header("authorization")
    }

    /// How what was sent was compressed.
    #[must_use]
    pub fn compressions(&self) -> BTreeSet<String> {
        &self.header("content-encoding") | &self.header("grpc-encoding")
    }

    fn header(&self, name: &str) -> BTreeSet<String> {
        self.received.lock(|inner| inner.headers.get(name).cloned().unwrap_or_default())
    }
}

impl Received {
    fn lock<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn heard(&self, headers: &HeaderMap) {
        for name in HEADERS {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            self.lock(|inner| inner.headers.entry(name).or_default().extend(value.map(str::to_owned)));
        }
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
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let points = metric.data.map(points).unwrap_or_default();
            let value = points.iter().map(|(value, _)| value).sum();
            let attributes = points.into_iter().map(|(_, attributes)| attributes);
            self.lock(|inner| {
                inner.metrics.insert(metric.name.clone(), value);
                inner
                    .series
                    .extend(attributes.map(|attributes| Series { name: metric.name.clone(), attributes }));
            });
        }
    }
}

/// Values with their attributes; of a histogram, how many there were.
fn points(data: Data) -> Vec<(f64, BTreeMap<String, String>)> {
    let number = |point: NumberDataPoint| {
        let value = match point.value {
            Some(number_data_point::Value::AsDouble(value)) => value,
            Some(number_data_point::Value::AsInt(value)) => value as f64,
            None => f64::NAN,
        };
        (value, attributes(point.attributes))
    };
    match data {
        Data::Sum(sum) => sum.data_points.into_iter().map(number).collect(),
        Data::Gauge(gauge) => gauge.data_points.into_iter().map(number).collect(),
        Data::Histogram(histogram) => {
            let points = histogram.data_points.into_iter();
            points.map(|point| (point.count as f64, attributes(point.attributes))).collect()
        }
        Data::ExponentialHistogram(_) | Data::Summary(_) => panic!("nobody sends these"),
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

/// A body as it was before it was compressed.
fn unpacked(headers: &HeaderMap, body: Bytes) -> Bytes {
    if headers.get("content-encoding").is_none_or(|encoding| encoding != "gzip") {
        return body;
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&*body).read_to_end(&mut unpacked).expect("gzip");
    unpacked.into()
}

async fn traces(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_traces(
        ExportTraceServiceRequest::decode(unpacked(&headers, body)).expect("traces in protobuf"),
    );
}

async fn metrics(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_metrics(
        ExportMetricsServiceRequest::decode(unpacked(&headers, body)).expect("metrics in protobuf"),
    );
}

async fn logs(State(received): State<Received>, headers: HeaderMap, body: Bytes) {
    received.heard(&headers);
    received.take_logs(ExportLogsServiceRequest::decode(unpacked(&headers, body)).expect("logs in protobuf"));
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

package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// Limits of the queue and of its requests to the collector.
const (
	queueSize     = 4096
	exportTimeout = 5 * time.Second
	maxAttributes = 16
	maxValue      = 256 // characters of an attribute's value
	maxLinks      = 1
)

// Config configures a Provider.
type Config struct {
	// Endpoint is the URL of the collector, http:// or https://. Without a path it is /v1/traces. If empty,
	// the variables of OpenTelemetry decide (OTEL_EXPORTER_OTLP_ENDPOINT).
	Endpoint string
	// Sample is the part of all traces to export, from 0 to 1. A caller's sampled traceparent is exported by
	// the same part, and a caller's unsampled one never.
	Sample float64
	// Version is the version of the daemon.
	Version string
	// Log receives errors of the export, at most one in a minute.
	Log *slog.Logger
}

// Provider exports spans. A slow or dead collector never delays who makes them: the queue is bounded,
// and what does not fit is lost.
type Provider struct {
	sdk *sdk.TracerProvider
	counts
}

// counts count spans by their fate.
type counts struct{ ended, exported, failed atomic.Int64 }

// New returns a Provider. The caller ends it with Shutdown.
func New(ctx context.Context, c Config) (*Provider, error) {
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false})}
	if c.Endpoint != "" {
		u, err := ParseEndpoint(c.Endpoint)
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracehttp.WithEndpointURL(u))
	}
	to, err := otlptrace.New(ctx, otlptracehttp.NewClient(options...))
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	from, err := resource.New(ctx, resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName("forkd"), semconv.ServiceVersion(c.Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the daemon in traces: %w", err)
	}
	p := &Provider{}
	limits := sdk.NewSpanLimits()
	limits.AttributeCountLimit, limits.AttributeValueLengthLimit, limits.LinkCountLimit = maxAttributes, maxValue, maxLinks
	ratio := sdk.TraceIDRatioBased(c.Sample)
	p.sdk = sdk.NewTracerProvider(sdk.WithResource(from), sdk.WithRawSpanLimits(limits),
		sdk.WithSampler(sdk.ParentBased(ratio, sdk.WithRemoteParentSampled(ratio))),
		sdk.WithSpanProcessor(&counting{&p.counts, sdk.NewBatchSpanProcessor(&exporter{counts: &p.counts, to: to, log: c.Log},
			sdk.WithMaxQueueSize(queueSize), sdk.WithExportTimeout(exportTimeout))}))
	return p, nil
}

// ParseEndpoint checks the URL of a collector, and adds the default path.
func ParseEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", fmt.Errorf("%q is no collector: want http://HOST:PORT or https://HOST:PORT, without a password", redacted(u))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func redacted(u *url.URL) string {
	if u == nil {
		return "the URL"
	}
	return u.Redacted()
}

// Tracer returns the tracer for spans of the daemon.
func (p *Provider) Tracer() trace.Tracer { return p.sdk.Tracer("github.com/forkd/forkd") }

// Shutdown exports what is in the queue, until ctx ends.
func (p *Provider) Shutdown(ctx context.Context) error { return p.sdk.Shutdown(ctx) }

// Counts returns the numbers of sampled spans that ended, that the collector took, and that it did not
// take. Others wait, or were lost because the queue was full.
func (p *Provider) Counts() (ended, exported, failed int64) {
	return p.ended.Load(), p.exported.Load(), p.failed.Load()
}

// counting counts the spans before the queue.
type counting struct {
	counts *counts
	sdk.SpanProcessor
}

// OnEnd counts a sampled span, and passes it on.
func (c *counting) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.counts.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(s)
}

// logPause is the shortest time between two lines about a failed export.
const logPause = time.Minute

// exporter counts the spans behind the queue.
type exporter struct {
	*counts
	to     sdk.SpanExporter
	log    *slog.Logger
	logged time.Time // the queue calls the exporter from one goroutine
}

// ExportSpans sends spans to the collector. Its error is logged here, so the SDK gets none.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.to.ExportSpans(ctx, spans)
	if err == nil {
		e.exported.Add(int64(len(spans)))
		return nil
	}
	e.failed.Add(int64(len(spans)))
	if now := time.Now(); now.Sub(e.logged) >= logPause {
		e.logged = now
		e.log.Warn("traces were not exported", "spans", len(spans), "err", err)
	}
	return nil
}

// Shutdown ends the connection to the collector.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }

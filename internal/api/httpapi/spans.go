package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/tracing"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// Traces exports spans.
type Traces interface {
	Tracer() trace.Tracer
	// Counts returns the numbers of sampled spans that ended, of exported ones, and of those that a collector did not
	// take.
	Counts() (ended, exported, failed int64)
}

// beginSpan starts the span of a request. Its parent is the caller's span. Programs that the request starts in
// guests get the new span as theirs, if it is sampled or the caller has a trace. Without a tracer it returns nil.
func (s *Server) beginSpan(r *http.Request, n *requestinfo.Info, began time.Time) (*http.Request, trace.Span) {
	if s.tracer == nil || unseen[r.URL.Path] {
		return r, nil
	}
	caller := n.Trace.Environ()
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.MapCarrier{
		"traceparent": caller[tracecontext.EnvParent], "tracestate": caller[tracecontext.EnvState]})
	ctx, span := s.tracer.Start(ctx, r.Method, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer))
	if at := span.SpanContext(); at.IsSampled() || caller != nil {
		n.Trace = n.Trace.Below(at.TraceID(), at.SpanID(), byte(at.TraceFlags()))
	}
	return r.WithContext(ctx), span
}

// unseen are paths that a monitor requests all the time. They have no spans.
var unseen = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// endSpan ends the span of a request. A request for a server in a sandbox has no route; its span is not exported,
// because a guest's traffic is not the operator's.
func endSpan(span trace.Span, r *http.Request, n *requestinfo.Info, rec *recorder) {
	if span == nil || !span.IsRecording() {
		return
	}
	_, route, _ := strings.Cut(r.Pattern, " ")
	if route == "" {
		return
	}
	method, status := metrics.MethodLabel(r.Method), rec.sent()
	span.SetName(method + " " + route)
	span.SetAttributes(tracing.Method.String(method), tracing.Route.String(route), tracing.Status.Int(status),
		tracing.Request.String(n.ID))
	if code := rec.Header().Get(api.HeaderError); code != "" {
		span.SetAttributes(tracing.ErrorType.String(metrics.CodeLabel(api.Code(code))))
	}
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// withSpans returns the engine with spans of operations and of their steps, from the durations that the engine measured.
func withSpans(e roles.Engine, by trace.Tracer) roles.Engine {
	s := spans{by}
	e.Snapshots = tracedSnapshots{e.Snapshots, s}
	e.Sandboxes = tracedSandboxes{e.Sandboxes, s}
	e.Branches = tracedBranches{e.Branches, s}
	return e
}

type (
	tracedSnapshots struct {
		roles.Snapshots
		spans spans
	}
	tracedSandboxes struct {
		roles.Sandboxes
		spans spans
	}
	tracedBranches struct {
		roles.Branches
		spans spans
	}
)

// spans makes the spans of operations.
type spans struct{ tracer trace.Tracer }

// operation is a span of the engine. Its methods do nothing if the request is not sampled.
type operation struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
}

func (e spans) begin(ctx context.Context, name string,
	attrs ...attribute.KeyValue) (context.Context, operation) {
	ctx, span := e.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
	return ctx, operation{e.tracer, ctx, span}
}

// end ends the span with the operation's error, of which only the code is exported.
func (o operation) end(err error) {
	markFailed(o.span, err)
	o.span.End()
}

func markFailed(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(tracing.ErrorType.String(string(apierror.CodeOf(err))))
		span.SetStatus(codes.Error, "")
	}
}

// step records a step that is over.
func (o operation) step(name string, from, to time.Time, attrs ...attribute.KeyValue) trace.Span {
	_, span := o.tracer.Start(o.ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(to))
	return span
}

// recording returns a context in which the engine records its steps, if they will be exported.
func (o operation) recording(ctx context.Context) (context.Context, *steps.Recorder) {
	if !o.span.IsRecording() {
		return ctx, nil
	}
	return steps.With(ctx, tracing.MaxChildren)
}

// stepsOf records the steps of an operation that ran from began until now.
func (o operation) stepsOf(rec *steps.Recorder, began time.Time) {
	o.report(rec.Steps(), began, began, time.Now())
}

// report records the steps of an operation that began at a time, within the time of the span above.
func (o operation) report(list []steps.Step, began, from, to time.Time) {
	for _, s := range list {
		begin := clamp(began.Add(s.At), from, to)
		end := clamp(began.Add(s.At+s.Took), begin, to)
		name, attrs := tracing.Step+s.Name, []attribute.KeyValue(nil)
		if s.By != "" {
			name, attrs = string(s.By)+"."+s.Name, append(attrs, tracing.ReportedBy.String(string(s.By)))
		}
		ctx, span := o.tracer.Start(o.ctx, name, trace.WithTimestamp(begin), trace.WithAttributes(attrs...))
		operation{o.tracer, ctx, span}.report(s.Below, began, begin, end)
		span.End(trace.WithTimestamp(end))
	}
}

func clamp(t, from, to time.Time) time.Time {
	switch {
	case t.Before(from):
		return from
	case t.After(to):
		return to
	}
	return t
}

// Fork forks, and records the steps and the first children.
func (e tracedSandboxes) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	ctx, o := e.spans.begin(ctx, tracing.Fork, tracing.Snapshot.String(req.Tag))
	ctx, rec := o.recording(ctx)
	res, err := e.Sandboxes.Fork(ctx, req)
	if err == nil {
		o.forked(res, rec, time.Now())
	}
	o.end(err)
	return res, err
}

// forked records a fork that ended just now.
func (o operation) forked(res sandbox.ForkResult, rec *steps.Recorder, now time.Time) {
	if !o.span.IsRecording() {
		return
	}
	began, failed := now.Add(-res.ReadyWall), 0
	armed := began.Add(res.ArmedWall)
	o.step(tracing.ForkArm, began, armed)
	o.step(tracing.ForkReady, armed, now)
	for i, c := range res.Children {
		if c.Err != nil {
			failed++
		}
		if i < tracing.MaxChildren {
			o.child(c, rec, began)
		}
	}
	o.span.SetAttributes(tracing.Children.Int(len(res.Children)), tracing.Failed.Int(failed),
		tracing.PoolReady.Int(res.PoolReady))
}

// child records one child of a fork, with events for its steps.
func (o operation) child(c sandbox.Child, rec *steps.Recorder, began time.Time) {
	ctx, span := o.tracer.Start(o.ctx, tracing.ForkChild, trace.WithTimestamp(began),
		trace.WithAttributes(tracing.Index.Int(c.Index), tracing.Sandbox.String(c.Info.ID)))
	markFailed(span, c.Err)
	if c.Err == nil {
		span.AddEvent("armed", trace.WithTimestamp(began.Add(c.Info.Armed)))
		span.AddEvent("resumed", trace.WithTimestamp(began.Add(c.Info.Resumed)))
	}
	end := began.Add(c.Info.Ready)
	operation{o.tracer, ctx, span}.report(rec.Child(c.Index), began, began, end)
	span.End(trace.WithTimestamp(end))
}

// Branch branches, and records the guest's pause and the children.
func (e tracedBranches) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	ctx, o := e.spans.begin(ctx, tracing.Branch, tracing.Sandbox.String(req.SandboxID),
		tracing.Mode.String(string(req.Mode)))
	ctx, rec := o.recording(ctx)
	began := time.Now()
	res, err := e.Branches.Branch(ctx, req)
	o.stepsOf(rec, began)
	if err == nil && o.span.IsRecording() {
		now := time.Now()
		end := now
		if res.Fork != nil {
			end = now.Add(-res.Fork.ReadyWall)
			ctx, span := o.tracer.Start(o.ctx, tracing.Fork, trace.WithTimestamp(end),
				trace.WithAttributes(tracing.Snapshot.String(res.Tag)))
			operation{o.tracer, ctx, span}.forked(*res.Fork, rec, now)
			span.End(trace.WithTimestamp(now))
		}
		resumed := end.Add(-res.AfterResume)
		o.step(tracing.GuestPause, resumed.Add(-res.Pause), resumed, tracing.PauseBytes.Int64(res.PausedBytes))
		o.span.SetAttributes(tracing.Snapshot.String(res.Tag), tracing.Rounds.Int(res.Rounds), tracing.Bytes.Int64(res.Bytes))
	}
	o.end(err)
	return res, err
}

// Rollback rolls back, and records it.
func (e tracedBranches) Rollback(ctx context.Context, id, tag string) (sandbox.Info, error) {
	ctx, o := e.spans.begin(ctx, tracing.Rollback, tracing.Sandbox.String(id), tracing.Snapshot.String(tag))
	ctx, rec := o.recording(ctx)
	began := time.Now()
	info, err := e.Branches.Rollback(ctx, id, tag)
	o.stepsOf(rec, began)
	o.end(err)
	return info, err
}

// Pause pauses, and records it.
func (e tracedSandboxes) Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error) {
	ctx, o := e.spans.begin(ctx, tracing.Pause, tracing.Sandbox.String(id))
	ctx, rec := o.recording(ctx)
	began := time.Now()
	info, err := e.Sandboxes.Pause(ctx, id, opt)
	o.stepsOf(rec, began)
	o.end(err)
	return info, err
}

// Resume resumes, and records it.
func (e tracedSandboxes) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	ctx, o := e.spans.begin(ctx, tracing.Resume, tracing.Sandbox.String(id))
	ctx, rec := o.recording(ctx)
	began := time.Now()
	info, err := e.Sandboxes.Resume(ctx, id)
	o.stepsOf(rec, began)
	o.end(err)
	return info, err
}

// CreateSnapshot makes a snapshot, and records its steps.
func (e tracedSnapshots) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	ctx, o := e.spans.begin(ctx, tracing.Create, tracing.Snapshot.String(req.Tag))
	info, err := e.Snapshots.CreateSnapshot(ctx, req, o.steps(progress))
	o.end(err)
	return info, err
}

// DeriveSnapshot makes a snapshot on another, and records its steps.
func (e tracedSnapshots) DeriveSnapshot(ctx context.Context, req sandbox.DeriveRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	ctx, o := e.spans.begin(ctx, tracing.Derive, tracing.Snapshot.String(req.Tag))
	info, err := e.Snapshots.DeriveSnapshot(ctx, req, o.steps(progress))
	o.end(err)
	return info, err
}

// steps records each step that is done, and passes all on.
func (o operation) steps(next func(sandbox.Step)) func(sandbox.Step) {
	if !o.span.IsRecording() {
		return next
	}
	return func(s sandbox.Step) {
		if s.Done {
			now := time.Now()
			began, done := now.Add(-s.Took), steps.Step{Name: s.Name, Took: s.Took}
			done.Below = done.Ending(steps.Guest, s.Guest)
			o.report([]steps.Step{done}, began, began, now)
		}
		if next != nil {
			next(s)
		}
	}
}

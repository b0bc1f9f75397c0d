//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/tracing"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// traceFlush bounds the export of the last spans when the daemon ends.
const traceFlush = 2 * time.Second

// traceOptions are the daemon's flags for traces.
type traceOptions struct {
	endpoint string
	sample   float64
}

func (o *traceOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "traces", "",
		"export OpenTelemetry traces by OTLP/HTTP to the collector at `URL`, such as http://127.0.0.1:4318 (default: "+
			"OTEL_EXPORTER_OTLP_ENDPOINT, or none)")
	f.Float64Var(&o.sample, "trace-sample", 1, "export the `PART` of all traces, from 0 to 1")
}

func (o *traceOptions) complete() error {
	if o.endpoint != "" {
		if _, err := tracing.ParseEndpoint(o.endpoint); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--traces: %w", err)}
		}
	}
	if !(o.sample >= 0 && o.sample <= 1) {
		return exit.UsageError{Err: fmt.Errorf("--trace-sample is %g, want 0 to 1", o.sample)}
	}
	return nil
}

// wanted reports whether there is a collector.
func (o *traceOptions) wanted() bool {
	return o.endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// open starts the export. It returns nil without a collector.
func (o *traceOptions) open(ctx context.Context, version string, log *slog.Logger,
	opened *undo.Stack) (httpapi.Traces, error) {
	if !o.wanted() {
		return nil, nil
	}
	p, err := tracing.New(ctx, tracing.Config{Endpoint: o.endpoint, Sample: o.sample, Version: version, Log: log})
	if err != nil {
		return nil, err
	}
	opened.Push(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.Warn("the last traces were not exported", "err", err)
		}
	})
	return p, nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// platform is another system that packages must compile for. No test runs there. The README lists
// the resulting gaps.
type platform struct {
	goos, goarch string
	packages     []string
}

// platforms returns the platforms. For Linux it lists all packages, for others the packages that
// talk to a daemon.
func platforms() []platform {
	toDaemon := []string{"./cmd/forkd", "./client/...", "./api/..."}
	return []platform{
		{"linux", "arm64", []string{"./..."}},
		{"darwin", "arm64", toDaemon},
		{"windows", "amd64", toDaemon},
	}
}

// crossPhase compiles for each platform; each counts as one test.
func crossPhase(ctx context.Context, to io.Writer) results {
	phaseOn(to, "go build for other platforms")
	began := time.Now()
	var r results
	for _, p := range platforms() {
		one := time.Now()
		if err := p.build(ctx, to); err != nil {
			r.failed = append(r.failed, fmt.Sprintf("go build for %s/%s: %v", p.goos, p.goarch, err))
			continue
		}
		fmt.Fprintf(to, "ok    %s/%s  %.1fs\n", p.goos, p.goarch, time.Since(one).Seconds())
		r.passed++
	}
	r.took = time.Since(began)
	return r
}

func (p platform) build(ctx context.Context, to io.Writer) error {
	cmd := lowly(ctx, "go", append([]string{"build", "-o", os.DevNull}, p.packages...)...)
	cmd.Env = append(os.Environ(), "GOOS="+p.goos, "GOARCH="+p.goarch, "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = to, to
	return runLowly(cmd)
}

// cross runs only this phase: `make cross`.
func cross(ctx context.Context, _ options) error {
	began := time.Now()
	var sum summary
	sum.add("cross", crossPhase(ctx, os.Stdout))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sum.print(os.Stdout, time.Since(began))
}

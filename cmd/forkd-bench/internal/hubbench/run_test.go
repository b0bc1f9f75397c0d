package hubbench

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

// A child of each way is asked, and nothing is left.
func TestBothWaysAreMeasuredAndEnded(t *testing.T) {
	d := measuretest.Start(t)
	var commands, caches []string
	snapshot := func(ctx context.Context, tag string) error {
		_, err := d.Client.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: tag, Image: "python-numpy"}, nil)
		return err
	}
	f, err := Run(t.Context(), Config{Client: d.Client, Image: "python-numpy", Rounds: 2, MemoryMiB: 64, HeldMiB: 2, SetMiB: 1,
		Forkd: func(ctx context.Context, cache string, args ...string) ([]byte, error) {
			if slices.Contains(caches, cache) {
				t.Errorf("%s has a cache that was used before", args[0])
			}
			commands, caches = append(commands, args[0]), append(caches, cache)
			switch args[0] {
			case "pull":
				return nil, snapshot(ctx, wholeTag)
			case "fork":
				if err := snapshot(ctx, madeTag+"-0123"); err != nil {
					return nil, err
				}
				res, err := d.Client.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: madeTag + "-0123"})
				if err != nil {
					return nil, err
				}
				return json.Marshal(res.Sandboxes)
			}
			return nil, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"push", "fork", "pull", "fork", "pull"}; !slices.Equal(commands, want) {
		t.Errorf("it ran %q, want %q", commands, want)
	}
	if f.Rounds != 2 || f.Lazy.AnswerMS < f.Lazy.ReadyMS || f.Whole.AnswerMS <= 0 || f.Ratio <= 0 {
		t.Errorf("%+v", f)
	}
	d.Empty()
}

// An answer over the link takes the delay and its size divided by the rate, and is counted.
func TestTheLinkHasADelayAndARate(t *testing.T) {
	dir := t.TempDir()
	content := make([]byte, 2<<20)
	if err := os.Mkdir(filepath.Join(dir, "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sha256", "ab"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := serve(dir, 10e6, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	get := func(ranges string) (int, time.Duration) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.shaped+"/v2/x/blobs/sha256:ab", nil)
		if err != nil {
			t.Fatal(err)
		}
		if ranges != "" {
			req.Header.Set("Range", ranges)
		}
		start := time.Now()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return len(b), time.Since(start)
	}
	if n, took := get("bytes=10-19"); n != 10 || took < 40*time.Millisecond {
		t.Errorf("%d bytes took %s", n, took)
	}
	if n, took := get(""); n != len(content) || took < 200*time.Millisecond {
		t.Errorf("%d bytes took %s", n, took)
	}
	if l.requests.Load() != 2 || l.bytes.Load() != int64(len(content)+10) {
		t.Errorf("it counts %d requests and %d bytes", l.requests.Load(), l.bytes.Load())
	}
}

package hubbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

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
		ChangedMiB: 2,
		Forkd: func(ctx context.Context, cache string, args ...string) ([]byte, error) {
			if slices.Contains(caches, cache) {
				t.Errorf("%s has a cache that was used before", args[0])
			}
			commands, caches = append(commands, args[0]), append(caches, cache)
			switch args[0] {
			case "push":
				return nil, put(ctx, args[2])
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
	want := slices.Concat([]string{"push", "fork", "pull", "fork", "pull"}, slices.Repeat([]string{"push"}, links))
	if !slices.Equal(commands, want) {
		t.Errorf("it ran %q, want %q", commands, want)
	}
	if f.Rounds != 2 || f.Lazy.AnswerMS < f.Lazy.ReadyMS || f.Whole.AnswerMS <= f.Whole.PullMS || f.Ratio <= 0 ||
		f.Bound.LinkMS != 0 || f.PullShare != 0 || *f.Chain != (Chain{Links: 5, ChangedMiB: 2, MovedMiB: 0.5, Ratio: 0.25}) {
		t.Errorf("%+v, chain %+v", f, *f.Chain)
	}
	d.Empty()
}

// put sends half a MiB to the registry of a reference.
func put(ctx context.Context, ref string) error {
	host, _, _ := strings.Cut(ref, "/")
	b := make([]byte, 1<<19)
	url := fmt.Sprintf("http://%s/v2/x/blobs/uploads/?digest=sha256:%x", host, sha256.Sum256(b))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// The bound is measured with the blobs of frames only, and all bytes cross the link.
func TestBound(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	packed := z.EncodeAll(random, nil)
	for name, b := range map[string][]byte{"frames": packed, "table": []byte("no frames")} {
		if err := os.WriteFile(filepath.Join(dir, "sha256", name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := run{Config: Config{RateMB: 10, Say: func(string) {}}}
	b, err := r.bound(dir)
	if want := float64(len(packed)+9) / 10_000; err != nil || math.Abs(b.LinkMS-want) > 0.001 || b.ZstdMS <= 0 || b.SHA256MS <= 0 {
		t.Errorf("%+v, %v, want %.3f ms of the link", b, err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "sha256", "frames"), random, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.bound(dir); err == nil {
		t.Error("random bytes were unpacked")
	}
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

package chainbench

import (
	"bytes"
	"context"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
)

// daemon returns a client of a real HTTP server over the fake engine, with the snapshot "py".
func daemon(t *testing.T) (*client.Client, *fakeengine.Engine) {
	t.Helper()
	images := fakeengine.NewImages("python-numpy")
	engine := fakeengine.New(images)
	server := httptest.NewServer(httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), Images: images}).Handler(auth.Access{Token: "0123456789abcdef"}))
	t.Cleanup(func() { server.Close(); engine.Close() })
	c, err := client.New(client.Options{URL: server.URL, Token: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	return c, engine
}

func tags(t *testing.T, c *client.Client) (out []string) {
	t.Helper()
	list, err := c.ListSnapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		out = append(out, s.Tag)
	}
	return out
}

func TestAChainIsMeasuredAndTakenDown(t *testing.T) {
	c, _ := daemon(t)
	cfg := Config{Client: c, Tag: "py", Depths: []int{3, 1}, N: 2, Rounds: 2, StepMiB: 1, Crowd: 4, CrowdDepth: 3}
	rows, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[0].Depth != 0 || rows[1].Depth != 1 || rows[2].Depth != 3 {
		t.Fatalf("%+v", rows)
	}
	if r := rows[2]; r.ArmedWallMS != 2 || r.RatioToBase != 1 || r.Crowd != 4 || r.PSSKiBPerChild != 4000 || r.SharedKiBPerChild != 21000 || r.DirtyBytes != 3<<20 {
		t.Errorf("%+v", r)
	}
	if rows[1].Crowd != 0 {
		t.Errorf("%+v", rows[1])
	}
	if got := tags(t, c); !slices.Equal(got, []string{"py"}) {
		t.Errorf("left behind: %q", got)
	}
	sbs, err := c.ListSandboxes(t.Context())
	if err != nil || len(sbs) != 0 {
		t.Errorf("left behind: %+v, %v", sbs, err)
	}
	drawn(t, rows)
}

func drawn(t *testing.T, rows []Row) {
	t.Helper()
	f := Plot(rows)
	if len(f.Panels) != 4 || !slices.Equal(f.Panels[1].Ticks, []string{"0", "1", "3"}) || f.Panels[1].Aim != aim {
		t.Fatalf("%+v", f)
	}
	if layer := f.Panels[2]; !slices.Equal(layer.Ticks, []string{"1", "3"}) || layer.Series[1].Values[1] != 3 {
		t.Errorf("%+v", layer)
	}
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil || b.Len() == 0 {
		t.Errorf("draw: %v", err)
	}
}

func TestAChainThatIsKeptIsUsedAgain(t *testing.T) {
	c, _ := daemon(t)
	cfg := Config{Client: c, Tag: "py", Depths: []int{2}, N: 1, Rounds: 1, StepMiB: 1, Keep: true}
	for range 2 {
		made := 0
		cfg.Say = func(s string) {
			if len(s) > 6 && s[:6] == "making" {
				made++
			}
		}
		before := len(tags(t, c))
		if _, err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got := tags(t, c); !slices.Equal(got, []string{"py", "py-chain1", "py-chain2"}) || made != 3-before {
			t.Errorf("%q, %d made", got, made)
		}
	}
	// A snapshot outside the chain is neither used nor deleted.
	if err := c.DeleteSnapshot(t.Context(), "py-chain2", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py-chain2", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), cfg); err == nil || !slices.Contains(tags(t, c), "py-chain2") {
		t.Errorf("a stranger was used: %v", err)
	}
}

func TestAChainThatFailsIsTakenDown(t *testing.T) {
	c, engine := daemon(t)
	engine.Limit = 3
	cfg := Config{Client: c, Tag: "py", Depths: []int{1}, N: 4, Rounds: 1, StepMiB: 1}
	if _, err := Run(t.Context(), cfg); err == nil {
		t.Error("four children where three fit")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.N, cfg.Say = 1, func(string) { cancel() }
	if _, err := Run(ctx, cfg); err == nil {
		t.Error("it was cancelled")
	}
	if got := tags(t, c); !slices.Equal(got, []string{"py"}) {
		t.Errorf("left behind: %q", got)
	}
	for _, bad := range []Config{{}, {Depths: []int{0}}, {Depths: []int{51}, N: 1, Rounds: 1, StepMiB: 1}, {Depths: []int{1}, Rounds: 1, StepMiB: 1}} {
		bad.Client, bad.Tag = c, "py"
		if _, err := Run(t.Context(), bad); err == nil {
			t.Errorf("%+v was run", bad)
		}
	}
}

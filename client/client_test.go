package client_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestRoundTripOfEveryMethod(t *testing.T) {
	d, c, id := sandbox(t, nil)
	ctx := t.Context()
	check := func(what string, err error, ok bool) {
		t.Helper()
		if err != nil || !ok {
			t.Errorf("%s: ok %v, error %v", what, ok, err)
		}
	}
	check("health", c.Health(ctx), true)
	v, err := c.Version(ctx)
	check("version", err, v.Version == "1.2.3" && v.API == "v1")
	m, err := c.Metrics(ctx)
	check("metrics", err, strings.Contains(m, "forkd_sandboxes_active 1"))
	var steps []string
	snap, err := c.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: "two", Image: "python-numpy", MemoryMiB: 512}, func(s api.Step) {
		steps = append(steps, s.Step)
	})
	check("create", err, snap.MemoryMiB == 512 && len(steps) == 8)
	list, err := c.ListSnapshots(ctx)
	check("list", err, len(list) == 2 && list[0].Tag == "py")
	info, err := c.Snapshot(ctx, "py")
	check("info", err, len(info.Sandboxes) == 1 && info.MemoryLogicalBytes == 256<<20)
	verified, err := c.VerifySnapshot(ctx, "py", nil)
	check("verify", err, verified.OK)
	var read, all int64
	verified, err = c.VerifySnapshot(ctx, "py", func(done, total int64) { read, all = done, total })
	check("verify, telling", err, verified.OK && read > 0 && all == 2*read)
	steps = nil
	flat, err := c.CompactSnapshot(ctx, "py", "flat", func(s api.Step) { steps = append(steps, s.Step) })
	check("compact", err, flat.Tag == "flat" && slices.Equal(steps, []string{"memory", "memory", "memory", "disk1", "disk1", "disk1"}))
	check("delete what was compacted", c.DeleteSnapshot(ctx, "flat", client.DeleteOptions{}), true)
	would, err := c.CollectLayers(ctx, true)
	check("collect, dry", err, would.DryRun && len(would.Layers) == 1)
	did, err := c.CollectLayers(ctx, false)
	check("collect", err, !did.DryRun && did.Bytes == would.Bytes)
	check("set pool", c.SetPool(ctx, "py", 7), true)
	pools, err := c.Pools(ctx)
	check("pools", err, len(pools) == 1 && pools[0].Size == 7)
	d.engine.Limit = 3
	n := 3
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "py", N: &n})
	check("fork", err, len(res.OK()) == 2 && len(res.Failed()) == 1 && res.PoolReady == 3 && res.ReadyWall > res.ArmedWall)
	sbs, err := c.ListSandboxes(ctx)
	check("ps", err, len(sbs) == 3)
	sb, err := c.Sandbox(ctx, id)
	check("get", err, sb.ID == id)
	use, err := c.Memory(ctx, id)
	check("memory", err, use.PSSKiB == 4000)
	console, err := c.Console(ctx, id)
	check("console", err, strings.Contains(console, "Linux version"))
	pong, err := c.Ping(ctx, id)
	check("ping", err, pong.Pong && *pong.NumpyVersion == "1.24.2")
	ran, err := c.Exec(ctx, id, api.ExecRequest{Args: []string{"echo", "hi"}})
	check("exec", err, ran.Stdout == "hi\n")
	value, err := c.Eval(ctx, id, api.EvalRequest{Code: "6*7"})
	check("eval", err, *value.Result == "42")
	images, err := c.ListImages(ctx)
	check("images", err, len(images) == 2)
	img, err := c.ImportImage(ctx, "mine", "", strings.NewReader("tar"))
	check("import", err, img.Name == "mine")
	has, err := c.HasImage(ctx, "mine", img.Digest)
	check("has image", err, has)
	has, err = c.HasImage(ctx, "other", img.Digest)
	check("has no image", err, !has)
	img, err = c.Image(ctx, "mine")
	check("image", err, img.SizeBytes == 3)
	check("remove image", c.RemoveImage(ctx, "mine"), true)
	check("kill", c.Kill(ctx, id), true)
	check("delete", c.DeleteSnapshot(ctx, "two", client.DeleteOptions{Cascade: true}), true)
}

func TestErrorsHaveTheirCode(t *testing.T) {
	d, c, id := sandbox(t, nil)
	if err := c.Kill(t.Context(), "sb-none"); !client.IsNotFound(err) {
		t.Errorf("kill of an unknown sandbox: %v", err)
	}
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, func(api.Step) {}); client.CodeOf(err) != api.CodeConflict {
		t.Errorf("snapshot of a taken tag: %v", err)
	}
	_, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "x", Image: "broken"}, func(api.Step) {})
	var e *client.Error
	if !errors.As(err, &e) || e.Code != api.CodeBootFailed || !strings.Contains(e.Message, "panic") || e.Status != 500 {
		t.Errorf("failed boot in the middle of a stream: %+v", e)
	}
	if err := c.DeleteSnapshot(t.Context(), "py", client.DeleteOptions{Cascade: true, Force: true}); client.CodeOf(err) != api.CodeInvalid {
		t.Errorf("delete with both options: %v", err)
	}
	d.engine.Fail(id, "killed by signal 9")
	_, err = c.Ping(t.Context(), id)
	if !errors.As(err, &e) || e.Code != api.CodeGuestGone || !e.FromDaemon() || !strings.Contains(e.Message, "signal 9") {
		t.Errorf("ping of a dead guest: %+v", e)
	}
	_, err = c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"echo"}})
	if !errors.As(err, &e) || e.Code != api.CodeGuestGone || e.Status != http.StatusBadGateway {
		t.Errorf("stream to a dead guest: %v", err)
	}
}

func TestTokenIsAskedForOnTCPOnly(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		name, url, token string
		code             api.Code
	}{
		{"socket", d.unix, "", ""},
		{"right token", d.tcp, token, ""},
		{"no token", d.tcp, "", api.CodeUnauthorized},
		{"wrong token", d.tcp, "x" + token, api.CodeUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, err := client.New(client.Options{URL: c.url, Token: c.token})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			_, err = cl.Version(t.Context())
			if (err == nil) != (c.code == "") || err != nil && client.CodeOf(err) != c.code {
				t.Errorf("got %v, want code %q", err, c.code)
			}
		})
	}
}

func TestTokenOfTheEnvironmentGoesOnlyToItsDaemon(t *testing.T) {
	var got string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.Write([]byte(`{"ok":true}`))
	}))
	defer h.Close()
	t.Setenv("FORKD_TOKEN", token)
	t.Setenv("FORKD_URL", h.URL)
	for _, c := range []struct {
		opt  client.Options
		want string
	}{{client.Options{}, "Bearer " + token}, {client.Options{URL: h.URL}, ""}} {
		cl, err := client.New(c.opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Health(t.Context()); err != nil || got != c.want {
			t.Errorf("%+v: Authorization %q, error %v", c.opt, got, err)
		}
		cl.Close()
	}
}

func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "tcp://" + l.Addr().String()
	l.Close()
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	var e *client.Error
	if err := c.Health(t.Context()); !errors.As(err, &e) || !client.IsUnreachable(err) || e.FromDaemon() || !strings.Contains(e.Message, url) {
		t.Errorf("got %+v", e)
	}
}

func TestURLsThatNameNoDaemon(t *testing.T) {
	for _, bad := range []string{"ftp://x", "unix://", "unix://host/path", "http://", "nonsense", "tcp:///x", "://"} {
		if _, err := client.New(client.Options{URL: bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestForeignErrorBodies(t *testing.T) {
	body, status := "", 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	defer h.Close()
	c, err := client.New(client.Options{URL: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, row := range []struct {
		status int
		body   string
		code   api.Code
		text   string
	}{
		{404, `{"error":"no such tag"}`, api.CodeNotFound, "no such tag"}, // the original's
		{400, `{"code":400,"message":"path is a directory"}`, api.CodeInvalid, "path is a directory"},
		{502, "<html>bad gateway</html>", api.CodeGuestGone, "502"},
		{418, "", api.CodeInvalid, "418"},
		{302, "", api.CodeInternal, "302"},
	} {
		status, body = row.status, row.body
		_, err := c.Version(t.Context())
		if client.CodeOf(err) != row.code || !strings.Contains(err.Error(), row.text) {
			t.Errorf("%d %q: got code %s, %v", row.status, row.body, client.CodeOf(err), err)
		}
	}
}

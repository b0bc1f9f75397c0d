//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/cmd/internal/ui"
)

// planted are secrets. Each source of the bundle has some of them.
const (
	plantedToken   = "1111111111111111111111111111111111111111111111111111111111aaaaaa"
	plantedMachine = "2222222222222222222222222222222222222222222222222222222222bbbbbb"
	plantedTraffic = "3333333333333333333333333333333333333333333333333333333333cccccc"
	plantedKey     = "e2b_0123456789abcdef0123456789abcdef01234567"
	plantedProxy   = "planted-proxy-password"
	plantedGuest   = "planted-guest-environment"
	plantedArg     = "planted-argument"
	plantedFlag    = "planted-flag-token"
	plantedEnv     = "planted-env-token"
	plantedConfig  = "planted-config-password"
	plantedBearer  = "planted.bearer-0123"
	plantedFile    = "planted-file-content"
	plantedOutput  = "planted-output-of-a-guest"
)

// text has secrets in the forms of a log.
const plantedText = "level=INFO msg=x token=" + plantedToken + " auth=\"Authorization: Bearer " + plantedBearer + "\"\n" +
	"key " + plantedKey + " dial socks5://user:" + plantedProxy + "@proxy:1080 " + plantedEnv + " " + plantedFlag + "\n" +
	"traffic " + plantedTraffic + " machine " + plantedMachine + " env=map[A:" + plantedGuest + "] args=[" + plantedArg + "]\n" +
	"level=WARN msg=y err=\"sh: exit code 1\\n" + plantedOutput + "\" kept-in-the-log\n" +
	`{"level":"INFO","env":{"A":"` + plantedGuest + `"},"args":["` + plantedArg + `"],"error":"a\n` + plantedOutput + `"}` + "\n"

func TestSupportHasNoSecrets(t *testing.T) {
	dir := t.TempDir()
	plant := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, sub := range map[string]string{"HOME": "", "XDG_STATE_HOME": "state", "XDG_DATA_HOME": "data", "XDG_RUNTIME_DIR": "run"} {
		t.Setenv(name, filepath.Join(dir, sub))
	}
	t.Setenv("FORKD_TOKEN", plantedEnv)
	t.Setenv("FORKD_NET", "socks5://user:"+plantedProxy+"@proxy:1080")
	t.Setenv("FORKD_KEPT", "kept-in-the-environment")
	t.Setenv("FORKD_MACHINE", "")
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	for _, program := range []string{"journalctl", "qemu-system-x86_64"} {
		plant("bin/"+program, "#!/bin/sh\ncat <<'END'\n"+plantedText+"END\n")
		if err := os.Chmod(filepath.Join(dir, "bin", program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plant("state/forkd/serve.log", plantedText)
	machine := "data/forkd/machine/default/"
	plant(machine+"token", plantedMachine)
	plant(machine+"console.log", plantedText)
	plant(machine+"qemu.log", plantedText)
	plant(machine+"state.json", `{"pid": 0, "serve": ["--token", "`+plantedFlag+`"], "network": {"proxy": "http://a:`+plantedProxy+`@p"}}`)
	plant("d/token", plantedToken+"\n")
	plant("d/net/settings.json", `{"Args": ["--x=`+plantedArg+`"], "Upstream": "socks5://user:`+plantedProxy+`@proxy:1080"}`)
	plant("d/net/upstream-proxy", plantedFile)
	plant("d/net/forkd-net.log", plantedText)
	plant("d/vm/1/vm.json", `{"version": 3, "cid": 7}`)
	plant("d/vm/1/vmm.log", plantedText)
	plant("d/vm/1/console.log", plantedFile)
	plant("d/vm/1/sandbox.json", `{"info": {"ID": "sb-kept-0001", "TrafficToken": "`+plantedTraffic+`"},
		"who": {"env": {"A": "`+plantedGuest+`"}, "fork_token": "`+plantedFlag+`"}}`)
	plant("d/vm/2/sandbox.json", `{"who": {"env": {"A": "`+plantedGuest) // cut off
	config := plant("config.yaml", "# "+plantedConfig+"\nlisten: [kept-in-the-configuration]\nadmin-password: "+plantedConfig+
		"\nupstream-proxy: socks5://u:"+plantedProxy+"@p:1\nenv: {A: "+plantedGuest+"}\n")

	url := plantedDaemon(t, filepath.Join(dir, "d", "s"))
	var out, notes bytes.Buffer
	a := &app{Printer: ui.Printer{Out: &out, Err: &notes}, config: config}
	root := newRoot(a)
	bundle := filepath.Join(dir, "bundle.tar.gz")
	root.SetArgs([]string{"support", "--json", "-o", bundle, "--url", url, "--token", plantedFlag})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(bundle)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	files := bundleFiles(t, bundle)
	for name, text := range files {
		if at := strings.Index(text, "planted"); at >= 0 {
			t.Errorf("%s has a secret: ...%.80s", name, text[max(0, at-40):])
		}
		for _, secret := range []string{plantedToken, plantedMachine, plantedTraffic, plantedKey} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	for name, want := range map[string]string{
		"versions.json": "9.9", "environment.txt": "kept-in-the-environment", "config.yaml": "kept-in-the-configuration",
		"capacity.json": "memory", "sandboxes.json": "sb-kept-0002", "snapshots.json": "tag-kept", "receipts.json": "sh: exit code 1: [removed]",
		"metrics.txt": "forkd_kept 1", "daemon.json": "running", "serve.log": "kept-in-the-log", "journal.log": "kept-in-the-log",
		"machine/console.log": "kept-in-the-log", "machine/qemu.log": "kept-in-the-log", "machine/state.json": "--token", "machine/status.json": "default",
		"run/vm/1/vm.json": "7", "run/vm/1/sandbox.json": "sb-kept-0001", "run/vm/1/vmm.log": "kept-in-the-log",
		"run/net/forkd-net.log": "kept-in-the-log", "run/net/settings.json": "Upstream", "errors.txt": "run/vm/2/sandbox.json: left out",
		"manifest.json": "part_seconds",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%.300s", name, want, files[name])
		}
	}
	var result supportBundle
	if err := json.Unmarshal(out.Bytes(), &result); err != nil || result.File != bundle || len(result.Files) < 20 || result.Bytes != st.Size() {
		t.Errorf("%s, %v", out.String(), err)
	}
	if strings.Contains(out.String()+notes.String(), "planted") {
		t.Errorf("printed: %s%s", out.String(), notes.String())
	}
}

// plantedDaemon serves answers with secrets at a socket, and returns its URL.
func plantedDaemon(t *testing.T, socket string) string {
	t.Helper()
	answers := map[string]string{
		"/version":     `{"version": "9.9", "api": "v1"}`,
		"/metrics":     "forkd_kept 1\nforkd_x{token=\"" + plantedFile + "\"} 1\n# Bearer " + plantedBearer + " " + plantedEnv + "\n",
		"/healthz":     `{"ok": true}`,
		"/v1/pools":    `[]`,
		"/v1/capacity": `{"resources": [{"resource": "memory"}], "pressure": [], "admits": "all"}`,
		"/v1/sandboxes": `[{"id": "sb-kept-0002", "status": "failed", "traffic_token": "` + plantedTraffic + `",
			"reason": "the program ended\n` + plantedOutput + `", "warning": "` + plantedKey + `"}]`,
		"/v1/snapshots": `[{"tag": "tag-kept", "warning": "python code of step 1: ` + plantedOutput + `",
			"network": {"headers": [{"host": "h", "headers": {"X": "` + plantedFile + `"}}]}}]`,
		"/v1/receipts": `[{"id": "r", "op": "snapshot", "error": "sh: exit code 1: ` + plantedOutput + `", "steps": [],
			"guest": {"hooks": [{"name": "h", "error": "exit code 1: a: ` + plantedOutput + `"}], "steps": [], "interpreters": []}}]`,
	}
	// A path of a socket has at most 108 bytes.
	link := filepath.Join("/tmp", fmt.Sprintf("forkd-support-%d", os.Getpid()))
	if err := os.Symlink(filepath.Dir(socket), link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	socket = filepath.Join(link, filepath.Base(socket))
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return "unix://" + socket
}

func bundleFiles(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(path.Clean(h.Name), "/")
		files[name] = string(text)
	}
}

// An error after the file was made leaves no file.
func TestSupportLeavesNoFileAfterAnInterruption(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("FORKD_URL", "unix:///nowhere/s")
	root := newRoot(&app{Printer: ui.Printer{Out: io.Discard, Err: io.Discard}})
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	root.SetArgs([]string{"support", "-o", path})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := root.ExecuteContext(ctx); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there")
	}
}

func TestCauseOnly(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"no space":                 "no space",
		"sh: exit code 1":          "sh: exit code 1",
		"sh: exit code 1\nmine":    "sh: exit code 1: [removed]",
		"start: exit code 1: mine": "start: exit code 1: [removed]",
		"mine\nmore":               "mine: [removed]",
	} {
		if got := causeOnly(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

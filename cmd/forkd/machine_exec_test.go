//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agent"
)

// fakeMachine makes a machine that appears to run, with a real agent on this host.
func fakeMachine(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("programs in the machine run as root")
	}
	const token = "0123456789abcdef0123456789abcdef"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Root: t.TempDir(), HooksDir: "/nowhere", CgroupMount: t.TempDir(), ImageFile: "/nowhere", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, a.Close()); err != nil {
			t.Error(err)
		}
	})
	stat, err1 := os.ReadFile("/proc/self/stat")
	boot, err2 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	dir := filepath.Join(data, "forkd", "machine", "fake")
	if err := errors.Join(err1, err2, os.MkdirAll(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	state, err := json.Marshal(map[string]any{
		"pid": os.Getpid(), "start_time": json.Number(fields[19]), "boot_id": strings.TrimSpace(string(boot)),
		"agent_port": l.Addr().(*net.TCPAddr).Port,
	})
	if err := errors.Join(err, os.WriteFile(dir+"/state.json", state, 0o600), os.WriteFile(dir+"/token", []byte(token), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestMachineExecPassesStandardInputOn(t *testing.T) {
	fakeMachine(t)
	var sent []byte
	for len(sent) < 1<<20 {
		for i := range 256 {
			sent = append(sent, byte(i))
		}
	}
	for _, tc := range []struct {
		name    string
		program []string
		in      io.Reader
		out     string
	}{
		{"all bytes, and the end", []string{"sh", "-c", "cat; echo end"}, bytes.NewReader(sent), string(sent) + "end\n"},
		{"none", []string{"cat"}, strings.NewReader(""), ""},
		{"more than is read", []string{"head", "-c", "3"}, bytes.NewReader(sent), "\x00\x01\x02"},
		{"input that never ends, of a program that does", []string{"echo", "done"}, func() io.Reader { r, _ := io.Pipe(); return r }(), "done\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := newMachineExecCommand(&machineName{app: &app{}, flag: "fake"})
			var out, complaint bytes.Buffer
			cmd.SetIn(tc.in)
			cmd.SetOut(&out)
			cmd.SetErr(&complaint)
			cmd.SetArgs(append([]string{"--"}, tc.program...))
			cmd.SetContext(t.Context())
			if err := cmd.Execute(); err != nil || out.String() != tc.out {
				t.Errorf("got %d bytes of %d, %v: %s", out.Len(), len(tc.out), err, complaint.String())
			}
		})
	}
}

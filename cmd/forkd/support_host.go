//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/cmd/forkd/internal/support"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// supportVMs is the maximum number of VMs with journals in a bundle.
const supportVMs = 200

// supportLogLines is the number of lines of the daemon's journal in a bundle.
const supportLogLines = "5000"

// hostParts returns the parts of a bundle about this host, its daemon and its machine.
func hostParts(s *supportSources) []support.Part {
	return []support.Part{
		{Name: "doctor", Collect: s.doctor},
		{Name: "daemon", Collect: s.daemon},
		{Name: "log of the daemon", Collect: s.daemonLog},
		{Name: "files of the daemon", Collect: s.daemonFiles},
		{Name: "machine", Collect: s.machine},
	}
}

// hostVersions returns versions of the host's software. Unknown ones are missing.
func hostVersions(ctx context.Context) map[string]string {
	v := map[string]string{}
	if b, err := os.ReadFile("/proc/version"); err == nil {
		v["kernel"] = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				v["system"] = strings.Trim(strings.TrimSpace(name), `"`)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, support.PartTime/2)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output(); err == nil {
		v["qemu"], _, _ = strings.Cut(string(out), "\n")
	} else {
		v["qemu"] = "unknown: " + err.Error()
	}
	return v
}

func (s *supportSources) doctor(_ context.Context, to *support.Sink) error {
	d, err := diagnose(s.cmd, s.app.flags.NameOfMachine())
	if err != nil {
		return err
	}
	return to.JSON("doctor.json", d)
}

// daemon writes the status of the daemon. The command line of the process is in another field than
// in the status, because fields with arguments are removed.
func (s *supportSources) daemon(ctx context.Context, to *support.Sink) error {
	st, err := statusOfDaemon(ctx, s.app)
	if err != nil {
		return err
	}
	status := struct {
		daemonStatus
		Flags []string `json:"flags,omitempty"`
	}{st, st.Command}
	status.Command = nil
	for _, path := range flagValues(st.Command, "token-file") {
		s.learnFile(path)
	}
	for _, token := range flagValues(st.Command, "token") {
		s.redactor.Learn(token)
	}
	return to.JSON("daemon.json", status)
}

// flagValues returns the values of a flag in a command line.
func flagValues(args []string, name string) (values []string) {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			values = append(values, v)
		} else if arg == "--"+name && i+1 < len(args) {
			values = append(values, args[i+1])
		}
	}
	return values
}

// learnFile removes the content of a file, such as a token, from all texts.
func (s *supportSources) learnFile(path string) {
	const longest = 4096 // of a token
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > longest {
		return
	}
	if b, err := os.ReadFile(path); err == nil { // #nosec G304 -- a path of the user's own daemon
		s.redactor.Learn(strings.Split(string(b), "\n")...)
	}
}

// daemonLog writes the log of a daemon that a command started, and that of the service.
func (s *supportSources) daemonLog(ctx context.Context, to *support.Sink) error {
	p, err := endpoint.DefaultPaths()
	if err != nil {
		return err
	}
	own := to.LogFile("serve.log", support.Path(p.ServeLog()))
	service := to.Command(ctx, "journal.log", "journalctl", "--unit=forkd", "--lines="+supportLogLines,
		"--no-pager", "--quiet", "--output=short-iso-precise")
	if own == nil && errors.Is(service, exec.ErrNotFound) || service == nil && errors.Is(own, fs.ErrNotExist) {
		return nil // one of them is enough
	}
	return errors.Join(own, service)
}

// runDir returns the run directory of this host's daemon.
func (s *supportSources) runDir() (string, error) {
	at, err := localDaemon(s.app)
	if err == nil {
		st := at.status(s.cmd.Context())
		if dirs := flagValues(st.Command, "run"); len(dirs) > 0 && filepath.IsAbs(dirs[0]) {
			return dirs[0], nil
		}
		return filepath.Dir(at.path), nil
	}
	p, err := endpoint.DefaultPaths()
	return p.Run, err
}

// daemonFiles writes the journals and logs in the daemon's run directory. It names each file, so
// that it never reads a token or a user's file.
func (s *supportSources) daemonFiles(ctx context.Context, to *support.Sink) error {
	dir, err := s.runDir()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	s.learnFile(endpoint.TokenFile(dir))
	names := []string{"net/settings.json", "net/forkd-net.log"}
	vms, err := fs.ReadDir(root.FS(), "vm")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		to.Failed("vm", err)
	}
	if n := len(vms); n > supportVMs {
		to.Failed("vm", fmt.Errorf("the files of %d VMs are left out", n-supportVMs))
		vms = vms[n-supportVMs:]
	}
	for _, vm := range vms {
		for _, name := range []string{"vm.json", "sandbox.json", "vmm.log"} {
			names = append(names, filepath.Join("vm", vm.Name(), name))
		}
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		add := to.LogFile
		if strings.HasSuffix(name, ".json") {
			add = to.JSONFile
		}
		if err := add(filepath.Join("run", name), support.In(root, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			to.Failed("run/"+name, err)
		}
	}
	return nil
}

// machine writes the status and the console of the machine, if there is one.
func (s *supportSources) machine(ctx context.Context, to *support.Sink) error {
	m, err := appliance.Open(s.app.flags.NameOfMachine())
	if err != nil {
		return err
	}
	if !m.Exists() {
		return nil
	}
	if token, err := m.Token(); err == nil {
		s.redactor.Learn(token)
	}
	for _, name := range []string{"console.log", "qemu.log"} {
		err := to.LogFile("machine/"+name, support.Path(filepath.Join(m.Dir, name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			to.Failed("machine", err)
		}
	}
	if err := to.JSONFile("machine/state.json", support.Path(filepath.Join(m.Dir, "state.json"))); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		to.Failed("machine", err)
	}
	st, err := m.Status(ctx)
	if err != nil {
		return err
	}
	return to.JSON("machine/status.json", st)
}

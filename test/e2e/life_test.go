package e2e

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestAVMMThatIsKilled(t *testing.T) {
	d := shared(t)
	d.unchanged()
	sbs := d.fork(3)
	victim, others := sbs[0], sbs[1:]
	if err := syscall.Kill(*victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure of "+victim.ID, func() bool {
		info, err := d.c.Sandbox(t.Context(), victim.ID)
		return err == nil && info.Status == api.SandboxFailed
	})
	info, err := d.c.Sandbox(t.Context(), victim.ID)
	if err != nil || !strings.Contains(info.Reason, "signal: killed") || info.PID != nil {
		t.Errorf("got %+v, %v", info, err)
	}
	_, err = d.c.Exec(t.Context(), victim.ID, api.ExecRequest{Args: []string{"true"}})
	wantError(t, err, api.CodeGuestGone, victim.ID, "signal: killed", "sandbox_failed")
	_, err = d.c.ExecStream(t.Context(), victim.ID, client.ExecOptions{Args: []string{"true"}})
	wantError(t, err, api.CodeGuestGone, victim.ID, "signal: killed", "sandbox_failed")
	_, err = d.c.Memory(t.Context(), victim.ID)
	wantError(t, err, api.CodeGuestGone, victim.ID, "signal: killed", "sandbox_failed")
	if _, err := d.c.Console(t.Context(), victim.ID); err != nil {
		t.Errorf("its console is lost: %v", err)
	}
	if code, out, _ := d.cli("ps"); code != 0 || !strings.Contains(out, "signal: killed") {
		t.Errorf("ps does not tell: %d %s", code, out)
	}
	d.alive(others...)
	if err := d.c.Kill(t.Context(), victim.ID); err != nil {
		t.Error(err)
	}
}

func TestManyClientsKillTheSameSandbox(t *testing.T) {
	d := shared(t)
	d.unchanged()
	sbs := d.fork(2)
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = d.c.Kill(t.Context(), sbs[0].ID) })
	}
	wg.Wait()
	killed := 0
	for _, err := range errs {
		if err == nil {
			killed++
			continue
		}
		wantError(t, err, api.CodeNotFound, sbs[0].ID) // it came after the end
	}
	if killed == 0 {
		t.Error("nobody killed it")
	}
	_, err := d.c.Sandbox(t.Context(), sbs[0].ID)
	wantError(t, err, api.CodeNotFound, sbs[0].ID)
	d.alive(sbs[1])
}

// The end of a daemon ends no sandbox.
func TestTheNextDaemonAdopts(t *testing.T) {
	d := shared(t)
	for name, sig := range map[string]syscall.Signal{"after SIGTERM": syscall.SIGTERM, "after SIGKILL": syscall.SIGKILL} {
		d.sub(name, func(t *testing.T) {
			if err := d.c.SetPool(t.Context(), parentTag, 2); err != nil {
				t.Fatal(err)
			}
			sbs := d.fork(3)
			d.sh(sbs[0].ID, "echo kept > /root/note")
			d.eval(sbs[0].ID, "colour = 'kept'")
			eventually(t, "full pool", func() bool { return d.pool().Ready == 2 })

			state := d.end(sig)
			if sig == syscall.SIGTERM && state.ExitCode() != 0 {
				t.Errorf("the daemon ended with %s", state)
			}
			_, err := d.c.ListSandboxes(t.Context())
			if !client.IsUnreachable(err) || !strings.Contains(err.Error(), d.url()) {
				t.Errorf("without a daemon: %v", err)
			}
			// A sandbox dies while no daemon runs.
			if err := syscall.Kill(*sbs[2].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			d.start()

			d.alive(sbs[:2]...)
			if got := d.sh(sbs[0].ID, "cat /root/note"); got != "kept" {
				t.Errorf("the file says %q", got)
			}
			if got := d.eval(sbs[0].ID, "colour"); got != "'kept'" {
				t.Errorf("the interpreter says %q", got)
			}
			info, err := d.c.Sandbox(t.Context(), sbs[2].ID)
			if err != nil || info.Status != api.SandboxFailed || !strings.Contains(info.Reason, "did not outlive the daemon's restart") {
				t.Errorf("the dead one: %+v, %v", info, err)
			}
			if p := d.pool(); p.Size != 2 {
				t.Errorf("the pool's size is lost: %+v", p)
			}
			d.alive(d.fork(1)...)
			eventually(t, "full pool", func() bool { return d.pool().Ready == 2 })
			if err := d.c.SetPool(t.Context(), parentTag, 0); err != nil {
				t.Fatal(err)
			}
		})
		// Shells of the killed daemon are gone, too.
		eventually(t, "end of the shells", func() bool { return len(d.processes()) == len(d.vmDirs()) && d.runningCount() == len(d.processes()) })
	}
}

func (d *daemon) pool() api.Pool {
	d.t.Helper()
	pools, err := d.c.Pools(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range pools {
		if p.Tag == parentTag {
			return p
		}
	}
	return api.Pool{}
}

func (d *daemon) runningCount() (n int) {
	d.t.Helper()
	list, err := d.c.ListSandboxes(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, sb := range list {
		if sb.Status == api.SandboxRunning {
			n++
		}
	}
	return n
}

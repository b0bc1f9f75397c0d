package enginefake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// Doom is the work of a daemon in a process of its own, which is killed at a step of it. The second
// configuration is of another daemon, for work of two.
type Doom func(ctx context.Context, e *engine.Engine, other engine.Config) error

// doomedDaemon starts the engine of a doomed daemon, which stops for good at the step. The
// arguments are the directories of one host or two, the images, the step and the name of the work.
func doomedDaemon(args []string, works map[string]Doom) error {
	images, step, do := imagesIn(args[0]), args[1], args[2]
	failpoint.Set(func(at failpoint.Step) error {
		if string(at) == step {
			StopAt(step)
		}
		return nil
	})
	ctx := context.Background()
	e, err := engine.Open(ctx, config(args[3], args[4], images))
	if err != nil {
		return err
	}
	work, known := works[do]
	if !known {
		return fmt.Errorf("no work %q", do)
	}
	var other engine.Config
	if len(args) > 5 {
		other = config(args[5], args[6], images)
	}
	return work(ctx, e, other)
}

// StopAt tells the test that a doomed daemon is at the step, and waits for its end.
func StopAt(step string) {
	fmt.Println("at", step)
	select {}
}

// KillDaemonAt runs a separate daemon on the host, with the work of that name, and kills it at the
// step. The work may be of two hosts.
func KillDaemonAt(h *Host, do, step string, others ...*Host) {
	h.T.Helper()
	cmd := exec.Command("/proc/self/exe", h.Cfg.Images.(Images).Dir, step, do, h.Cfg.StoreDir, h.Cfg.RunDir)
	for _, o := range others {
		cmd.Args = append(cmd.Args, o.Cfg.StoreDir, o.Cfg.RunDir)
	}
	cmd.Args[0], cmd.Stderr = "forkd-daemon", os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	io.Copy(io.Discard, out)
	cmd.Wait()
	if line != "at "+step+"\n" {
		h.T.Fatalf("the daemon said %q", line)
	}
}

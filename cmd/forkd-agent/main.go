// Command forkd-agent runs inside a guest. As PID 1 it is the init of the initramfs; otherwise it
// serves on a given address. Under the names of forkcmd it is the commands by which a guest forks
// itself, and under that of initns it runs an init. This package only wires the parts;
// internal/guest/agent does the work.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agent/forkcall"
	"github.com/forkd/forkd/internal/guest/agent/forkcmd"
	"github.com/forkd/forkd/internal/guest/agent/guestinit"
	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agent/initns"
	"github.com/forkd/forkd/internal/guest/agent/inventory"
	"github.com/forkd/forkd/internal/guest/agent/listen"
	"github.com/forkd/forkd/internal/guest/agent/nic"
	"github.com/forkd/forkd/internal/guest/agent/quiet"
	"github.com/forkd/forkd/internal/guest/agent/sftpcmd"
	"github.com/forkd/forkd/internal/guest/agent/tokencall"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

// The linker sets version, and in tests the capabilities that an older agent lacks, with commas.
var (
	version  = "dev"
	withheld = ""
)

func main() {
	if code, known := forkcmd.Run(os.Args[0], os.Args[1:]); known {
		os.Exit(code)
	}
	if code, known := sftpcmd.Run(os.Args[0]); known {
		os.Exit(code)
	}
	if code, known := initns.Run(os.Args[0], os.Args[1:]); known {
		os.Exit(code)
	}
	quiet.Tune()
	unix.Umask(0o022) // the modes of uploaded files and new folders rely on it
	from, err := handover.Take()
	switch {
	case err != nil:
	case from != nil:
		err = continueFrom(from)
	case os.Getpid() == 1:
		err = runInit()
	default:
		err = run(os.Args[1:])
	}
	switch {
	case os.Getpid() == 1 && err != nil:
		guestinit.Fail(err)
	case os.Getpid() == 1:
		guestinit.PowerOff()
	case err != nil:
		fmt.Fprintln(os.Stderr, "forkd-agent:", err)
		os.Exit(1)
	}
}

// runInit runs the agent as PID 1. It boots, then serves, or starts the image's own init with the
// agent beside it.
func runInit() error {
	boot, err := guestinit.Boot(logf)
	if err != nil {
		return err
	}
	o := options{listen: cmp.Or(boot.Listen, fmt.Sprintf("vsock:%d", agentproto.AgentPort)), ready: boot.Listen == ""}
	if o.ready { // there is a host for requests
		o.forkSocket = forkcall.Socket
		if err := forkcmd.Install(logf); err != nil {
			logf("commands for forks: %v", err) // a guest without these commands is still useful
		}
		if err := sftpcmd.Install(forkcmd.Program); err != nil {
			logf("SFTP server: %v", err)
		}
		if err := initns.Install(forkcmd.Program); err != nil {
			logf("command for inits: %v", err)
		}
	}
	if boot.Init != "" {
		if err := guestinit.StartBeside("--listen", o.listen, fmt.Sprintf("--ready=%t", o.ready),
			"--fork-socket", o.forkSocket); err != nil {
			return err
		}
		return guestinit.Become(boot.Init)
	}
	// Ctrl-Alt-Del and kill(1) reach init as signals; both mean power-off.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	o.layers = boot.Layers
	return serve(ctx, o)
}

type options struct {
	listen    string
	tokenFile string
	ready     bool
	// forkSocket is the socket for programs that fork this guest. If empty, they cannot.
	forkSocket string
	version    bool
	layers     inventory.Layers
	bench      diskbench.Config // Dir is empty unless only the benchmark is to run
	takesOver  int              // asks only whether the program takes over a state of that version; 0 if not
	from       *handover.State  // of an earlier program of this process; may be nil
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("forkd-agent", flag.ContinueOnError)
	fs.StringVar(&o.listen, "listen", "vsock:1024", "where to serve: vsock:PORT, tcp:HOST:PORT or unix:PATH")
	fs.StringVar(&o.tokenFile, "token-file", "", "file with the token that every request must show, except GET /health")
	fs.BoolVar(&o.ready, "ready", false, "tell the host over vsock once when serving")
	fs.StringVar(&o.forkSocket, "fork-socket", "", "Unix socket for programs that fork this guest (default: none)")
	fs.IntVar(&o.takesOver, agent.TrialFlag, 0, "exit with 0 if this program takes over a state of this version")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	fs.StringVar(&o.bench.Dir, "disk-bench", "",
		"measure the file system of this folder, print the figures as JSON, and exit")
	fs.IntVar(&o.bench.MiB, "disk-mib", 64, "size of the file for -disk-bench")
	fs.IntVar(&o.bench.RandomOps, "disk-ops", 2000, "random accesses for -disk-bench")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, nil
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.takesOver != 0 {
		if o.takesOver != handover.Version {
			return fmt.Errorf("version %d of the old agent's state: this program takes over version %d", o.takesOver,
				handover.Version)
		}
		return nil
	}
	if o.version {
		fmt.Println("forkd-agent", version)
		return nil
	}
	if o.bench.Dir != "" {
		f, err := diskbench.Run(o.bench)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	return serve(ctx, o)
}

func serve(ctx context.Context, o options) error {
	if err := quiet.Relax(); err != nil {
		logf("%v", err) // this only costs performance
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	cfg := agent.Config{
		Version: version, Orphans: true, Token: token, IdentityPort: o.ready, Layers: o.layers, Log: logf, From: o.from,
		Withheld: strings.Split(withheld, ","),
	}
	if o.ready {
		cfg.Update = o.update()
	}
	if link := openLink(o); link != nil {
		defer link.Close()
		cfg.Link = link
	}
	if o.ready {
		cfg.ServicesFile = servicesFile
	}
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	if o.from != nil {
		o.from.Close()
	}
	l, err := listen.Open(o.listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	if o.forkSocket != "" {
		calls, err := forkcall.Listen(o.forkSocket)
		if err != nil {
			return err
		}
		beside.Go(func() {
			if err := a.ServeForks(ctx, calls); err != nil {
				logf("%v", err)
			}
		})
		tokens, err := forkcall.Listen(filepath.Join(filepath.Dir(o.forkSocket), filepath.Base(tokencall.Socket)))
		if err != nil {
			return err
		}
		beside.Go(func() {
			if err := a.ServeTokens(ctx, tokens); err != nil {
				logf("%v", err)
			}
		})
	}
	if !o.ready {
		return a.Serve(ctx, l)
	}
	err = servePorts(ctx, &beside, map[uint32]serveFunc{
		agentproto.IdentityPort: a.ServeIdentity,
		agentproto.DialPort:     a.ServeDials,
		agentproto.EvalPort:     a.ServeEvals,
		agentproto.UpdatePort:   a.ServeUpdates,
	})
	if err != nil {
		return err
	}
	beside.Go(func() { a.ServeNotices(ctx) })
	if o.from != nil {
		return a.Serve(ctx, l)
	}
	beside.Go(func() {
		// The listener is open, so connections from now on are answered.
		if err := guestinit.SignalReady(ctx); err != nil {
			logf("%v", err)
		}
	})
	return a.Serve(ctx, l)
}

// servicesFile keeps the declarations of services on the guest's disk.
const servicesFile = "/var/lib/forkd/services.json"

// serveFunc serves on a listener until the context ends.
type serveFunc func(context.Context, net.Listener) error

// servePorts serves each function on its own vsock port, in goroutines of beside. All ports listen
// when it returns.
func servePorts(ctx context.Context, beside *sync.WaitGroup, ports map[uint32]serveFunc) error {
	for port, serve := range ports {
		l, err := listen.Open(fmt.Sprintf("vsock:%d", port))
		if err != nil {
			return err
		}
		beside.Go(func() {
			if err := serve(ctx, l); err != nil {
				logf("%v", err)
			}
		})
	}
	return nil
}

// openLink opens the guest's network device, which an identity configures. It returns nil if the
// guest has no device or no host that sends identities. Children of a guest without it share one
// hardware address. This is harmless, because each child is alone on its wire.
func openLink(o options) *nic.Link {
	if !o.ready {
		return nil
	}
	link, err := nic.Open()
	if err != nil {
		logf("network device: %v", err)
	}
	return link
}

func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("read token: %s is empty", file)
	}
	return token, nil
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "forkd-agent: "+format+"\n", args...)
}

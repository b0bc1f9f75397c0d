//go:build linux

// Command chartnode is the program forkd of the images in the test of the chart. `serve` serves the real API over a fake
// engine, with the flags that matter for its clients; the next process starts empty. All other commands are those
// of the real forkd beside it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func main() {
	err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chartnode:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "serve" {
		return syscall.Exec("/usr/lib/forkd/forkd-cli", append([]string{"forkd"}, args...), os.Environ())
	}
	var name, cert, key, token, keys string
	var addresses []string
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true // the flags are compared with those of forkd elsewhere
	f.StringVar(&name, "node-name", "", "")
	f.StringVar(&cert, "tls-cert", "", "")
	f.StringVar(&key, "tls-key", "", "")
	f.StringVar(&token, "token-file", "", "")
	f.StringVar(&keys, "keys-file", "", "")
	f.StringArrayVar(&addresses, "listen", nil, "")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if info, err := os.Stat("/dev/kvm"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("the container has no /dev/kvm: %v", err)
	}
	files, err := tlscert.Open(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	conf, err := files.Config("")
	if err != nil {
		return err
	}
	secret, err := os.ReadFile(token)
	if err != nil {
		return err
	}
	d, err := fakedaemon.ServeNode(daemon.Node{Name: name, Key: sandbox.NodeKeyOf(name), ChildMemory: 8 << 20},
		fakedaemon.Front{Binding: listen.Binding{Token: strings.TrimSpace(string(secret)), TLS: conf},
			Addresses: addresses, KeysFile: keys},
		"python-numpy")
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fakeengine.SkipIDs(d.Engine, int(time.Now().Unix()%(1<<20)))
	go d.Engine.Drain.Run(ctx)
	request := sandbox.CreateRequest{Tag: "py", Image: "python-numpy"}
	if _, err := d.Engine.CreateSnapshot(ctx, request, func(sandbox.Step) {}); err != nil {
		return err
	}
	for state := systemd.SdNotifyReady; ctx.Err() == nil; state = systemd.SdNotifyWatchdog {
		if _, err := systemd.SdNotify(false, state); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
	return nil
}

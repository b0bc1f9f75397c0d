package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
)

// Flags are the global flags that select the daemon of a command.
type Flags struct {
	// URL and Token are empty if not given. complete then reads the environment.
	URL, Token    string
	Fingerprint   string // of its certificate
	Cert, Key     string // files of the client's own
	ForceHost     bool   // Host, even if VMs do not run well there
	Host, Machine bool   // skip the decision where VMs run
	MachineName   string // the machine to run them in, which skips the decision too
	Context       string // the context with the daemon; contexts.Default means the search for one

	search bool // the environment names no daemon
}

// Add adds the flags to a program's root command.
func (f *Flags) Add(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.URL, "url", "",
		"use the daemon at `URL`: http://HOST:PORT, https://HOST:PORT or unix:///PATH (default: $FORKD_URL, "+
			"otherwise a daemon is found or started)")
	flags.StringVar(&f.Token, "token", "",
		"authenticate with `TOKEN` (default: $FORKD_TOKEN for a daemon given by URL, otherwise its token file)")
	flags.StringVar(&f.Fingerprint, "tls-fingerprint", "",
		"trust the https daemon with a certificate of this SHA-256 `FINGERPRINT`; forkd serve prints it "+
			"(default: $FORKD_TLS_FINGERPRINT)")
	flags.StringVar(&f.Cert, "tls-client-cert", "",
		"present the client certificate in `FILE` to an https daemon (default: $FORKD_TLS_CLIENT_CERT)")
	flags.StringVar(&f.Key, "tls-client-key", "",
		"read the client certificate's key from `FILE` (default: $FORKD_TLS_CLIENT_KEY)")
	flags.BoolVar(&f.Host, "host", false, "run VMs on this host; returns an error if its KVM is missing or too slow")
	flags.BoolVar(&f.ForceHost, "force-host", false, "run VMs on this host, even if its KVM is missing or too slow")
	flags.BoolVar(&f.Machine, "machine", false, "run VMs in the machine, without testing this host's KVM")
	flags.StringVar(&f.MachineName, "machine-name", "",
		"run VMs in the machine `NAME` (default: $FORKD_MACHINE, otherwise default)")
	flags.StringVar(&f.Context, "context", "",
		"use the daemon of the context `NAME` (default: $FORKD_CONTEXT, otherwise the choice of forkd context use)")
	_ = root.RegisterFlagCompletionFunc("context", completeContexts)
	root.MarkFlagsMutuallyExclusive("host", "machine", "url")
	root.MarkFlagsMutuallyExclusive("force-host", "machine", "url")
	root.MarkFlagsMutuallyExclusive("host", "machine-name", "url")
	root.MarkFlagsMutuallyExclusive("force-host", "machine-name", "url")
	for _, place := range []string{"url", "host", "force-host", "machine", "machine-name"} {
		root.MarkFlagsMutuallyExclusive("context", place)
	}
}

// FlagError reports a flag value with which no daemon can be reached.
type FlagError struct {
	// Err describes the unsuitable value.
	Err error
}

func (e FlagError) Error() string { return e.Err.Error() }
func (e FlagError) Unwrap() error { return e.Err }

// Connect finds the daemon, starts it if opt allows that, and returns a client for it.
func (f Flags) Connect(ctx context.Context, opt Options, userAgent string) (*client.Client, Endpoint, error) {
	f, err := f.Chosen()
	if err != nil {
		return nil, Endpoint{}, FlagError{err}
	}
	opt, err = f.complete(opt)
	if err != nil {
		return nil, Endpoint{}, FlagError{err}
	}
	e, err := Find(ctx, opt)
	if err != nil {
		return nil, e, err
	}
	to := client.Options{URL: e.URL, Token: e.Token, UserAgent: userAgent}
	f.secure(&to)
	if e.Where == Machine {
		to.Retry = untilItRuns(opt.Notice, restartWait)
	}
	c, err := client.New(to)
	if err != nil {
		return nil, e, FlagError{err}
	}
	return c, e, nil
}

// restartWait limits how long read-only calls wait for a machine's daemon. The machine's init
// restarts it.
const restartWait = 15 * time.Second

// untilItRuns waits briefly before each retry of a call, and reports the wait once. All calls of a
// command share the limit.
func untilItRuns(notice func(string), limit time.Duration) func(context.Context, error) bool {
	var once sync.Once
	end := sync.OnceValue(func() time.Time { return time.Now().Add(limit) })
	return func(ctx context.Context, err error) bool {
		if time.Now().After(end()) {
			return false
		}
		once.Do(func() {
			notice(fmt.Sprintf("%v; it may be restarting: retrying for %s", err, limit))
		})
		select {
		case <-ctx.Done():
			return false
		case <-time.After(limit / 60):
			return true
		}
	}
}

// secure sets the TLS options. Values from the environment apply only to a daemon at https://,
// because they may be meant for another daemon. An unsuitable flag is an error.
func (f Flags) secure(opt *client.Options) {
	opt.Fingerprint, opt.ClientCert, opt.ClientKey = f.Fingerprint, f.Cert, f.Key
	if !strings.HasPrefix(opt.URL, "https:") {
		return
	}
	if opt.Fingerprint == "" {
		opt.Fingerprint = os.Getenv("FORKD_TLS_FINGERPRINT")
	}
	if opt.ClientCert == "" && opt.ClientKey == "" {
		opt.ClientCert, opt.ClientKey = os.Getenv("FORKD_TLS_CLIENT_CERT"), os.Getenv("FORKD_TLS_CLIENT_KEY")
	}
}

// NameOfMachine returns the machine of the flags, the environment or the context. If empty, it is the
// default machine. Chosen reports a context that cannot be used.
func (f Flags) NameOfMachine() string {
	f, _ = f.Chosen()
	if f.search {
		return ""
	}
	return cmp.Or(f.MachineName, os.Getenv("FORKD_MACHINE"))
}

// NamedURL returns the URL of the flags or the environment. Chosen adds a context's.
func (f Flags) NamedURL() string {
	if f.URL == "" && !f.search {
		return os.Getenv("FORKD_URL")
	}
	return f.URL
}

// complete fills in the values of the flags and the environment.
func (f Flags) complete(opt Options) (Options, error) {
	opt.URL, opt.Token = f.NamedURL(), f.Token
	opt.MachineName = f.NameOfMachine()
	switch {
	case f.Host, f.ForceHost:
		opt.Force, opt.Anyway, opt.URL = Host, f.ForceHost, ""
	case f.Machine, f.MachineName != "":
		opt.Force, opt.URL = Machine, ""
	case f.URL != "" || opt.MachineName == "":
	case opt.URL != "":
		return opt, errors.New(
			"FORKD_URL and FORKD_MACHINE name two daemons: unset one of them, or use --url or --machine-name")
	default:
		opt.Force = Machine
	}
	if opt.Token == "" && opt.URL != "" {
		opt.Token = os.Getenv("FORKD_TOKEN") // for a named daemon; a found daemon has its own
	}
	return opt, nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newServiceCommand(a *app) *cobra.Command {
	cmd := group("service", "Run supervised programs in a sandbox", newServiceAddCommand(a), newServiceLsCommand(a),
		newServiceActionCommand(a, "stop", "Stop services until they are started again"),
		newServiceActionCommand(a, "start", "Start stopped or failed services"),
		newServiceActionCommand(a, "restart", "Restart services"), newServiceRmCommand(a))
	cmd.Aliases = []string{"services"}
	return cmd
}

func newServiceAddCommand(a *app) *cobra.Command {
	var spec api.ServiceSpec
	var env, ready []string
	var httpPath, file string
	var readyTime, stop, wait, initial, most, reset, every, live time.Duration
	var failures int
	var noCheck bool
	cmd := &cobra.Command{
		Use:   "add ID NAME [-- COMMAND...]",
		Short: "Declare a service and start it",
		Long: "Declare a service and start it. The agent in the guest keeps it running: also after a fork, a pause\n" +
			"or a rollback, and without the daemon. The command must stay in the foreground. A service of the\n" +
			"same name with another declaration is replaced.\n\n" +
			"Without COMMAND it is the entrypoint and command of the sandbox's container image, with the image's\n" +
			"health check and stop signal. An unhealthy service is restarted.",
		Example: "  forkd service add sb-5f3a0012-0001 web --port 8000 -- python3 -m http.server 8000\n" +
			"  forkd service add sb-5f3a0012-0001 db --file services.yaml",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				all, err := servicesFile(file)
				if err != nil {
					return err
				}
				found := false
				for _, s := range all {
					if s.Name == args[1] {
						spec, found = s.ServiceSpec, true
					}
				}
				if !found {
					return exit.UsageError{Err: fmt.Errorf("--file: %s has no service %s", file, args[1])}
				}
			} else {
				var err error
				spec.Command = args[2:]
				if spec.Env, err = environment(env); err != nil {
					return err
				}
				if httpPath != "" || len(ready) > 0 || readyTime > 0 {
					spec.Ready = &api.ServiceReady{HTTP: httpPath, TimeoutSecs: readyTime.Seconds()}
					if len(ready) > 0 {
						spec.Ready.Command = []string{"sh", "-c", strings.Join(ready, " && ")}
					}
				}
				if every > 0 || live > 0 || failures > 0 {
					spec.Liveness = &api.ServiceLiveness{IntervalSecs: every.Seconds(), TimeoutSecs: live.Seconds(),
						FailureThreshold: failures}
				}
				spec.StopTimeoutSecs = stop.Seconds()
				if initial > 0 || most > 0 || reset > 0 {
					spec.Backoff = &api.ServiceBackoff{InitialMS: int(initial.Milliseconds()), MaxMS: int(most.Milliseconds()),
						ResetSecs: reset.Seconds()}
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if len(spec.Command) == 0 {
					if err := serviceOfImage(ctx, c, args[0], &spec, noCheck); err != nil {
						return err
					}
				}
				services := client.ServicesOf(c, args[0])
				s, err := services.Declare(ctx, args[1], spec)
				if err == nil && wait > 0 {
					s, err = awaitService(ctx, services, args[1], wait)
				}
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Value(s)
				}
				a.Note("service %s is %s", s.Name, s.State)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "take the declaration from YAML `FILE`, in the form of fork --services")
	f.IntVar(&spec.Port, "port", 0, "check TCP `PORT`: the service is ready when it accepts a connection")
	f.StringVar(&httpPath, "ready-http", "", "check `PATH` on the port for an answer with a status from 200 to 399")
	f.StringArrayVar(&ready, "ready-exec", nil, "check with shell command `TEXT` in the guest for exit code 0; may be repeated")
	f.DurationVar(&readyTime, "ready-timeout", 0, "restart it if it is not ready after `TIME` (default 1m)")
	f.DurationVar(&every, "liveness-interval", 0, "repeat the check every `TIME` while it is ready, and restart it after failures (default: never)")
	f.DurationVar(&live, "liveness-timeout", 0, "count a check without an answer after `TIME` as a failure (default 5s)")
	f.IntVar(&failures, "liveness-failures", 0, "restart it after `N` failures in a row (default 3)")
	f.StringVar(&spec.Restart, "restart", "", "restart it `WHEN` it ends: always, on-failure or never (default always)")
	f.IntVar(&spec.MaxRestarts, "max-restarts", 0, "give up after `N` restarts in a row (default: never)")
	f.DurationVar(&initial, "backoff", 0, "wait `TIME` before the first restart; it doubles with each (default 200ms)")
	f.DurationVar(&most, "backoff-max", 0, "wait at most `TIME` (default 30s)")
	f.DurationVar(&reset, "backoff-reset", 0, "wait the first time again after a run of `TIME` (default 1m)")
	f.DurationVar(&stop, "stop-timeout", 0, "kill it `TIME` after its stop signal (default 10s)")
	f.StringVar(&spec.StopSignal, "stop-signal", "", "ask it to end with `SIGNAL`, such as SIGQUIT or 3 (default: the image's, or SIGTERM)")
	f.BoolVar(&noCheck, "no-healthcheck", false, "without COMMAND, leave out the health check of the image")
	f.IntVar(&spec.LogKiB, "log-kib", 0, "keep the last `KIB` of its output, 4 to 4096 (default 256)")
	f.StringVar(&spec.User, "user", "", "run as `USER` of the guest (default: the image's)")
	f.StringVar(&spec.Cwd, "cwd", "", "run in directory `DIR` of the guest (default: the image's)")
	f.StringArrayVarP(&env, "env", "e", nil, "set an environment variable, `NAME=VALUE`; may be repeated")
	f.DurationVar(&wait, "wait", 0, "wait up to `TIME` until it is ready")
	return cmd
}

// awaitService waits until a service is ready.
func awaitService(ctx context.Context, services client.Services, name string, wait time.Duration) (api.Service, error) {
	list, err := services.List(ctx, wait)
	if err != nil {
		return api.Service{}, err
	}
	for _, s := range list {
		if s.Name == name {
			return s, notReady("", s)
		}
	}
	return api.Service{}, &client.Error{Code: api.CodeNotFound, Message: "service " + name + " is gone"}
}

// notReady returns an error for a service of a sandbox that is not ready.
func notReady(id string, s api.Service) error {
	if s.State == "ready" {
		return nil
	}
	text := fmt.Sprintf("service %s is %s", s.Name, s.State)
	if s.Error != "" {
		text += ": " + s.Error
	}
	if id != "" {
		text = "sandbox " + id + ": " + text
	}
	return &client.Error{Code: api.CodeTimeout, Message: text}
}

func newServiceLsCommand(a *app) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:     "ls ID",
		Aliases: []string{"list"},
		Short:   "List the services of a sandbox",
		Args:    cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			list, err := client.ServicesOf(c, args[0]).List(ctx, wait)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"NAME", "STATE", "SINCE", "RESTARTS", "EXIT", "PID", "PORT", "LOG", "ERROR"},
				serviceRows(list, time.Now()))
		}),
		ValidArgsFunction: a.complete().ids(),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to `TIME` until each is ready, failed or stopped")
	return cmd
}

func serviceRows(list []api.Service, now time.Time) (rows [][]string) {
	number := func(n int) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	for _, s := range list {
		code := "-"
		if s.ExitCode != nil {
			code = fmt.Sprint(*s.ExitCode)
		}
		rows = append(rows, []string{s.Name, s.State, ui.Age(s.Since, now), fmt.Sprint(s.Restarts), code, number(s.PID),
			number(s.Port), ui.Bytes(s.LogBytes - s.LogLostBytes), s.Error})
	}
	return rows
}

func newServiceActionCommand(a *app, action, short string) *cobra.Command {
	return &cobra.Command{
		Use: action + " ID NAME...", Short: short, Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			var all []api.Service
			for _, name := range args[1:] {
				s, err := client.ServicesOf(c, args[0]).Change(ctx, name, action)
				if err != nil {
					return err
				}
				all = append(all, s)
				a.Note("service %s is %s", s.Name, s.State)
			}
			if a.JSON {
				return a.Value(all)
			}
			return nil
		}),
	}
}

func newServiceRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID NAME...", Aliases: []string{"remove"}, Short: "Stop services and remove them with their logs",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			for _, name := range args[1:] {
				if err := client.ServicesOf(c, args[0]).Remove(ctx, name); err != nil {
					return err
				}
				a.Note("service %s is removed", name)
			}
			if a.JSON {
				return a.Value(args[1:])
			}
			return nil
		}),
	}
}

// serviceFlags are the flags of a fork with services.
type serviceFlags struct {
	list []string
	file string
	wait time.Duration
}

func (s *serviceFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.list, "service", nil,
		"run shell command COMMAND as service NAME of each child, restarted when it ends, `NAME[:PORT]=COMMAND`; "+
			"may be repeated")
	f.StringVar(&s.file, "services", "", "declare the services of YAML `FILE` in each child")
	f.DurationVar(&s.wait, "wait-services", 0, "wait up to `TIME` until all services of the children are ready")
}

// services returns the services for a request.
func (s *serviceFlags) services() (out []api.NamedService, err error) {
	if s.file != "" {
		if out, err = servicesFile(s.file); err != nil {
			return nil, err
		}
	}
	for _, text := range s.list {
		name, command, ok := strings.Cut(text, "=")
		if !ok || name == "" || command == "" {
			return nil, exit.UsageError{Err: fmt.Errorf("--service %q: want NAME=COMMAND or NAME:PORT=COMMAND", text)}
		}
		v := api.NamedService{ServiceSpec: api.ServiceSpec{Command: []string{"sh", "-c", "exec " + command}}}
		port := ""
		if v.Name, port, ok = strings.Cut(name, ":"); ok {
			if _, err := fmt.Sscanf(port, "%d", &v.Port); err != nil || fmt.Sprint(v.Port) != port {
				return nil, exit.UsageError{Err: fmt.Errorf("--service %q: port %q is no number", text, port)}
			}
		}
		if strings.ContainsAny(command, ";&|\n(") { // more than one command: the shell stays
			v.Command[2] = command
		}
		out = append(out, v)
	}
	return out, nil
}

// maxServicesFile is the largest file of services, in bytes.
const maxServicesFile = 1 << 20

// servicesFile reads services from a YAML file with a list under "services".
func servicesFile(name string) ([]api.NamedService, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxServicesFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > maxServicesFile {
		return nil, exit.UsageError{Err: fmt.Errorf("%s has more than %d bytes", name, maxServicesFile)}
	}
	var all struct {
		Services []api.NamedService `json:"services"`
	}
	if b, err = yaml.YAMLToJSON(b); err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	if len(all.Services) == 0 {
		return nil, exit.UsageError{Err: fmt.Errorf("%s: want a list under services", name)}
	}
	return all.Services, nil
}

// await waits for the services of forked children.
func (s *serviceFlags) await(ctx context.Context, c *client.Client, children []api.SandboxInfo) error {
	if s.wait <= 0 {
		return nil
	}
	until := time.Now().Add(s.wait)
	for _, sb := range children {
		list, err := client.ServicesOf(c, sb.ID).List(ctx, max(time.Until(until), time.Millisecond))
		if err != nil {
			return err
		}
		for _, v := range list {
			if err := notReady(sb.ID, v); err != nil && v.State != "stopped" {
				return err
			}
		}
	}
	return nil
}

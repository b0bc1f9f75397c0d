package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/forkd/internal/mcpconfig"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newMCPConfigCommand(a *app) *cobra.Command {
	var install bool
	var file string
	name := "forkd"
	var clients []string
	for _, c := range mcpconfig.Clients() {
		clients = append(clients, c.Name)
	}
	cmd := &cobra.Command{
		Use:   "config CLIENT [-- FLAG...]",
		Short: "Print or install the configuration that an MCP client needs",
		Long: "Print the configuration of this server for an MCP client, or write it into the client's file with\n" +
			"--install. CLIENT is claude-code (.mcp.json in the current directory), claude-desktop, cline,\n" +
			"cursor or vscode. FLAGS after -- are for `forkd mcp`. Flags for the choice of a daemon are copied.\n\n" +
			"--install keeps all other content of the file, and a backup beside it. It changes no file with\n" +
			"invalid JSON.",
		Example: "  forkd mcp config vscode\n  forkd mcp config claude-code --install -- --read-only\n" +
			"  forkd --url http://127.0.0.1:8889 mcp config cursor --install",
		Args:      configArgs,
		ValidArgs: clients,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := mcpconfig.Find(args[0])
			if err != nil {
				return exit.UsageError{Err: err}
			}
			e, err := mcpEntry(a, cmd, args[1:])
			if err != nil {
				return err
			}
			if install {
				return installMCP(a, c, file, name, e)
			}
			b, err := c.Merge(nil, name, e)
			if err != nil {
				return err
			}
			return a.Line("%s", b[:len(b)-1])
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "write it into the client's file")
	cmd.Flags().StringVar(&file, "file", "", "with --install: write to `FILE` (default: the client's)")
	cmd.Flags().StringVar(&name, "name", name, "name the server `NAME` in the client")
	return cmd
}

// configArgs wants one argument before --, and checks the flags after it.
func configArgs(cmd *cobra.Command, args []string) error {
	before := len(args)
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		before = at
	}
	if before != 1 {
		return errors.New("want one CLIENT; flags for `forkd mcp` come after --")
	}
	server := newMCPCommand(new(app))
	if err := server.ParseFlags(args[1:]); err != nil {
		return fmt.Errorf("after --: %w", err)
	}
	if rest := server.Flags().Args(); len(rest) > 0 {
		return fmt.Errorf("after --: %q is no flag", rest[0])
	}
	return nil
}

// daemonVariables select the daemon. A client with a window does not have the shell's environment.
var daemonVariables = []string{"FORKD_URL", "FORKD_TOKEN", "FORKD_MACHINE", "FORKD_CONTEXT", "FORKD_TLS_FINGERPRINT",
	"FORKD_TLS_CLIENT_CERT", "FORKD_TLS_CLIENT_KEY"}

// mcpEntry returns the entry that starts this program with the flags that select the daemon. The
// token is in the environment, because other users can see arguments.
func mcpEntry(a *app, cmd *cobra.Command, more []string) (mcpconfig.Entry, error) {
	self, err := os.Executable()
	if err != nil {
		return mcpconfig.Entry{}, err
	}
	e := mcpconfig.Entry{Command: self, Args: []string{}, Env: map[string]string{}}
	for _, name := range daemonVariables {
		if value := os.Getenv(name); value != "" {
			e.Env[name] = value
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "token":
			e.Env["FORKD_TOKEN"] = f.Value.String()
			return
		case "url":
			delete(e.Env, "FORKD_URL") // the flag has precedence
			delete(e.Env, "FORKD_MACHINE")
		case "tls-fingerprint", "tls-client-cert", "tls-client-key", "host", "force-host", "machine", "machine-name",
			"context":
		default:
			return
		}
		e.Args = append(e.Args, "--"+f.Name+"="+f.Value.String())
	})
	if e.Env["FORKD_TOKEN"] != "" {
		a.Note("this configuration has the daemon's token: keep it from others")
	}
	e.Args = append(append(e.Args, "mcp"), more...)
	return e, nil
}

// thisHost describes this host.
func thisHost() (h mcpconfig.Host, err error) {
	h = mcpconfig.Host{OS: runtime.GOOS, AppData: os.Getenv("APPDATA"), Config: os.Getenv("XDG_CONFIG_HOME")}
	if h.Home, err = os.UserHomeDir(); err != nil {
		return h, err
	}
	if h.OS == "windows" && h.AppData == "" {
		h.AppData = filepath.Join(h.Home, "AppData", "Roaming")
	}
	h.Dir, err = os.Getwd()
	return h, err
}

func installMCP(a *app, c mcpconfig.Client, file, name string, e mcpconfig.Entry) error {
	if file == "" {
		h, err := thisHost()
		if err != nil {
			return err
		}
		file = c.File(h)
	}
	done, err := c.Install(file, name, e)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.Value(done)
	case !done.Changed:
		a.Note("%s has this configuration already", done.File)
	case done.Backup != "":
		a.Note("the old file is %s", done.Backup)
	}
	if done.Changed {
		a.Note("start %s again to use it", c.Name)
	}
	return a.Line("%s", done.File)
}

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// mcpOptions are the flags of forkd mcp.
type mcpOptions struct {
	mcp.Options
	listen, tokenFile string
	hosts             []string
	verbose           bool
}

func newMCPCommand(a *app) *cobra.Command {
	var o mcpOptions
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve sandboxes to language models (Model Context Protocol)",
		Long: "Serve sandboxes to language models by the Model Context Protocol, versions 2026-07-28 and\n" +
			"2025-11-25, on standard input and output, or with --listen over HTTP (docs/use/mcp.md). The\n" +
			"sandboxes of a session end with it, unless they are kept. The server has the rights of its key.\n\n" +
			"MCP clients start it themselves: `forkd mcp config CLIENT` prints their configuration. Logs go to\n" +
			"standard error.",
		Example: "  forkd mcp config claude-code --install\n  forkd mcp --read-only\n" +
			"  forkd mcp --tools list_snapshots,spawn_sandboxes,exec_command --max-sandboxes 4\n" +
			"  forkd mcp --listen 127.0.0.1:8890",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveMCP(cmd.Context(), a, cmd.InOrStdin(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "serve HTTP at `ADDRESS` instead, such as 127.0.0.1:8890; port 0: a free one")
	f.StringVar(&o.tokenFile, "listen-token-file", "",
		"read the token of HTTP clients from `FILE` (default: $FORKD_MCP_TOKEN, else generated and printed)")
	f.StringSliceVar(&o.hosts, "allow-host", nil,
		"with --listen: accept `HOST` in requests, such as a reverse proxy's")
	f.DurationVar(&o.Idle, "idle", mcp.DefaultIdle, "with --listen: end a session after `DURATION` without a request")
	f.BoolVar(&o.ReadOnly, "read-only", false, "offer only tools without side effects")
	f.StringSliceVar(&o.Tools, "tools", nil, "offer only the tools in `LIST`, separated by commas")
	f.IntVar(&o.MaxSandboxes, "max-sandboxes", mcp.DefaultMax, "limit a session to `N` sandboxes; 0: no limit")
	f.DurationVar(&o.MaxLifetime, "max-lifetime", mcp.DefaultMaxLifetime,
		"end sandboxes after `DURATION`, kept ones included; 0: no limit")
	f.DurationVar(&o.Lease, "lease", mcp.DefaultLease,
		"end sandboxes `DURATION` after the end of this process, if it is killed")
	f.IntVar(&o.OutputBytes, "max-output", mcp.DefaultOutputBytes,
		"limit a text in an answer to `BYTES`; the rest is a resource")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log every session and failed call")
	_ = cmd.RegisterFlagCompletionFunc("tools", cobra.FixedCompletions(mcp.Tools(), cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(newMCPConfigCommand(a))
	return cmd
}

// serveMCP serves until the client or the user ends it. Results of commands go to standard output,
// so it must use none of the app's methods that print results.
func serveMCP(ctx context.Context, a *app, in io.Reader, o mcpOptions) error {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	o.Log = slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: level}))
	o.Version, o.Connect = version, daemonForMCP(a)
	s, err := mcp.New(o.Options)
	if err != nil {
		return exit.UsageError{Err: err}
	}
	defer s.Close()
	if o.listen == "" {
		return s.ServeStdio(ctx, in, os.Stdout)
	}
	return listenMCP(ctx, a, s, o)
}

// daemonForMCP returns a function that finds or starts the daemon when the first tool needs it.
func daemonForMCP(a *app) func(context.Context) (*client.Client, error) {
	note := func(line string) { a.Note("forkd: %s", line) }
	opt := endpoint.Options{Start: true, Progress: note, Notice: note}
	return func(ctx context.Context) (*client.Client, error) {
		c, _, err := a.flags.Connect(ctx, opt, "forkd-mcp/"+version)
		return c, err
	}
}

func listenMCP(ctx context.Context, a *app, s *mcp.Server, o mcpOptions) error {
	if err := mcp.CheckListen(o.listen); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--listen: %w", err)}
	}
	token, made, err := o.token()
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return hints.With(codedError{fmt.Errorf("cannot listen here: %w", err), api.CodeConflict},
			"choose another port; port 0 takes a free one")
	}
	a.Note("forkd: MCP at http://%s%s", l.Addr(), mcp.Path)
	if made {
		fmt.Fprintf(a.Err, "forkd: clients must send the header Authorization: Bearer %s\n", token)
	}
	for i, host := range o.hosts {
		o.hosts[i] = strings.ToLower(host)
	}
	return s.ServeHTTP(ctx, l, mcp.HTTPOptions{Token: token, Hosts: o.hosts})
}

// token returns the token that HTTP clients must show, and whether it is new.
func (o mcpOptions) token() (token string, made bool, err error) {
	from := "$FORKD_MCP_TOKEN"
	switch {
	case o.tokenFile != "":
		from = "--listen-token-file " + o.tokenFile
		b, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return "", false, fmt.Errorf("read token: %w", err)
		}
		token = strings.TrimSpace(string(b))
	case os.Getenv("FORKD_MCP_TOKEN") != "":
		token = os.Getenv("FORKD_MCP_TOKEN")
	default:
		return rand.Text(), true, nil
	}
	if len(token) < api.MinTokenBytes || strings.ContainsAny(token, " \t\r\n") ||
		strings.HasPrefix(token, "REPLACE_ME_") || strings.HasPrefix(token, "CHANGE_ME_") {
		return "", false, exit.UsageError{Err: fmt.Errorf("%s: want a secret of at least %d characters, without spaces",
			from, api.MinTokenBytes)}
	}
	return token, false, nil
}

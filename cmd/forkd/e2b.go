package main

import (
	"context"
	"errors"
	"net"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/e2bapi/apikey"
)

func newE2BCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "e2b",
		Short: "Use this daemon with E2B's clients",
		Long: "Use this daemon with E2B's unmodified clients. Three environment variables point them to it\n" +
			"(docs/use/e2b.md).",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newE2BUpCommand(a), newE2BEnvCommand(a), newE2BCheckCommand(a))
	return cmd
}

func newE2BEnvCommand(a *app) *cobra.Command {
	var bare bool
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the environment variables for E2B's clients",
		Long: "Print the environment variables that point E2B's clients to this daemon, for a shell or a .env\n" +
			"file. Their API key has the same rights as the daemon's token.",
		Example: "  eval \"$(forkd e2b env)\"\n  forkd e2b env --dotenv > .env",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			vars, err := askE2BVariables(cmd.Context(), a)
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(vars)
			}
			return printVariables(a, vars, bare)
		},
	}
	cmd.Flags().BoolVar(&bare, "dotenv", false, "print lines for a .env file")
	return cmd
}

// e2bVariables are the environment variables of E2B's clients, by name.
type e2bVariables struct {
	Key     string `json:"E2B_API_KEY"`
	API     string `json:"E2B_API_URL"`
	Sandbox string `json:"E2B_SANDBOX_URL"`
	Volume  string `json:"E2B_VOLUME_API_URL"`
}

// printVariables prints lines for a shell or, bare, for a .env file.
func printVariables(a *app, vars e2bVariables, bare bool) error {
	prefix := "export "
	if bare {
		prefix = ""
	}
	return a.Line("%[1]sE2B_API_KEY=%[2]s\n%[1]sE2B_API_URL=%[3]s\n%[1]sE2B_SANDBOX_URL=%[4]s\n"+
		"%[1]sE2B_VOLUME_API_URL=%[5]s", prefix, vars.Key, vars.API, vars.Sandbox, vars.Volume)
}

// askE2BVariables returns the variables for a running daemon.
func askE2BVariables(ctx context.Context, a *app) (e2bVariables, error) {
	c, e, err := a.daemon(ctx)
	if err != nil {
		return e2bVariables{}, err
	}
	defer c.Close()
	return e2bVariablesOf(ctx, c, e)
}

// e2bVariablesOf checks that the daemon answers.
func e2bVariablesOf(ctx context.Context, c *client.Client, e endpoint.Endpoint) (e2bVariables, error) {
	if _, err := c.Version(ctx); err != nil {
		return e2bVariables{}, err
	}
	address, token := httpURL(e.URL), e.Token
	if address == "" {
		address, token = endpoint.Listening(e.URL)
	}
	if address == "" {
		return e2bVariables{}, exit.UsageError{Err: errors.New("this daemon has no address that E2B's clients can use: " +
			"forkd serve --listen tcp://127.0.0.1:8889 has one, with a token in its run directory")}
	}
	if token == "" {
		return e2bVariables{}, &client.Error{Code: api.CodeUnauthorized, Status: api.CodeUnauthorized.Status(),
			Message: "the daemon's token is not known here: give it with --token, or as FORKD_TOKEN"}
	}
	return e2bVariables{Key: apikey.Of(token), API: address, Sandbox: address, Volume: address}, nil
}

// httpURL returns a daemon's address for HTTP clients. It is empty for a Unix socket.
func httpURL(daemon string) string {
	u, err := url.Parse(daemon)
	if err != nil || u.Host == "" {
		return ""
	}
	if u.Scheme != "https" {
		u.Scheme = "http"
	}
	if host, port, err := net.SplitHostPort(u.Host); err == nil {
		u.Host = net.JoinHostPort(host, port)
	}
	return u.Scheme + "://" + u.Host
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/contexts"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
)

func newContextCommand(a *app) *cobra.Command {
	cmd := group("context", "Name daemons, and choose one for all commands", newContextCreateCommand(a),
		newContextUseCommand(a), newContextLsCommand(a), newContextShowCommand(a), newContextRmCommand(a))
	cmd.Aliases = []string{"contexts"}
	return cmd
}

// namedContext is a context in the CLI's JSON. It has no token.
type namedContext struct {
	Name        string `json:"name"`
	Current     bool   `json:"current"` // the choice of `forkd context use`
	InEffect    bool   `json:"in_effect"`
	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
	Machine     string `json:"machine,omitempty"`
	Host        bool   `json:"host,omitempty"`
	TokenFile   string `json:"token_file,omitempty"`
	HasToken    bool   `json:"has_token,omitempty"` // in the file of contexts
	Fingerprint string `json:"tls_fingerprint,omitempty"`
	Cert        string `json:"tls_client_cert,omitempty"`
	Key         string `json:"tls_client_key,omitempty"`
}

func newContextCreateCommand(a *app) *cobra.Command {
	var c contexts.Context
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Name a daemon",
		Long: "Name a daemon. These flags of all commands select it: --url, with --tls-fingerprint or\n" +
			"--tls-client-cert and --tls-client-key; --machine-name for the daemon in a machine; or --host for\n" +
			"the daemon of this host. Add a token with --token-file. With --token the token itself is stored\n" +
			"in ~/.config/forkd/config.yaml.",
		Example: "  forkd context create lab --url https://lab.example:8889 --token-file ~/lab.token\n" +
			"  forkd context create big --machine-name big --description 'machine with 32 GiB'",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			if err := contexts.CheckName(name); err != nil {
				return exit.UsageError{Err: err}
			}
			if err := contextOf(a.flags, &c); err != nil {
				return exit.UsageError{Err: err}
			}
			if err := changeContexts(func(f *contexts.File) error { return f.Create(name, c) }); err != nil {
				return err
			}
			a.Note("context %s is %s; `forkd context use %s` chooses it", name, c.Place(), name)
			return userContexts{a}.printName(name)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.TokenFile, "token-file", "", "read the daemon's token from `FILE` at each command")
	f.StringVar(&c.Description, "description", "", "show `TEXT` in lists")
	return cmd
}

// contextOf fills a context from the flags, and checks it without a connection.
func contextOf(f endpoint.Flags, c *contexts.Context) (err error) {
	c.URL, c.Machine, c.Host, c.Token = f.URL, f.MachineName, f.Host, f.Token
	if f.Machine {
		c.Machine = cmp.Or(c.Machine, "default")
	}
	c.Fingerprint, c.Cert, c.Key = f.Fingerprint, f.Cert, f.Key
	secure := cmp.Or(c.Fingerprint, c.Cert, c.Key) != ""
	switch {
	case f.ForceHost:
		return errors.New("a context cannot have --force-host: give it to the command that starts the daemon")
	case c.URL == "" && c.Machine == "" && !c.Host:
		return errors.New("name the daemon with --url, --machine-name or --host")
	case c.Token != "" && c.TokenFile != "":
		return errors.New("--token and --token-file exclude each other")
	case secure && !strings.HasPrefix(c.URL, "https:"):
		return errors.New("--tls-fingerprint, --tls-client-cert and --tls-client-key need --url https://HOST:PORT")
	}
	files := map[string]*string{"token-file": &c.TokenFile, "tls-client-cert": &c.Cert, "tls-client-key": &c.Key}
	for flag, file := range files {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if _, err := c.ReadToken(); err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if c.URL == "" {
		return nil
	}
	to, err := client.New(client.Options{URL: c.URL, Fingerprint: c.Fingerprint, ClientCert: c.Cert, ClientKey: c.Key})
	if err != nil {
		return err
	}
	to.Close()
	return nil
}

// changeContexts changes the user's file.
func changeContexts(change func(*contexts.File) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	return contexts.Change(path, change)
}

// userContexts prints the contexts of the user's file.
type userContexts struct{ app *app }

// printName prints the name of a changed context for scripts.
func (a userContexts) printName(name string) error {
	if a.app.JSON {
		list, err := a.list()
		if err != nil {
			return err
		}
		for _, c := range list {
			if c.Name == name {
				return a.app.Value(c)
			}
		}
	}
	return a.app.Line("%s", name)
}

func newContextUseCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Choose the context of all commands",
		Long: "Choose the context of all commands. `forkd context use default` ends the choice: commands find or\n" +
			"start a daemon again. Flags and the environment have precedence over the choice.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeContextNames(true),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := changeContexts(func(f *contexts.File) error { return f.Use(args[0]) }); err != nil {
				return err
			}
			for _, v := range []string{"FORKD_URL", "FORKD_MACHINE", "FORKD_CONTEXT"} {
				if os.Getenv(v) != "" {
					a.Note("%s has precedence over the choice", v)
				}
			}
			return userContexts{a}.printName(args[0])
		},
	}
}

func newContextLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the contexts",
		Long: "List the contexts. A star marks the choice of `forkd context use`. The context default is the\n" +
			"search for a daemon.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := userContexts{a}.list()
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			var rows [][]string
			for _, c := range list {
				mark := ""
				if c.Current {
					mark = "*"
				}
				rows = append(rows, []string{c.Name, mark, c.place(), c.token(), c.Description})
			}
			return a.Table([]string{"NAME", "CURRENT", "DAEMON", "TOKEN", "DESCRIPTION"}, rows)
		},
	}
}

// list returns all contexts, with the built-in one first.
func (a userContexts) list() ([]namedContext, error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	now, err := a.app.flags.ContextName()
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	list := []namedContext{{Name: contexts.Default, Current: file.Current == "",
		Description: "this host's daemon or a machine's, found or started"}}
	for _, name := range file.Names() {
		c := file.Contexts[name]
		list = append(list, namedContext{Name: name, Current: name == file.Current, Description: c.Description,
			URL: c.URL, Machine: c.Machine, Host: c.Host, TokenFile: c.TokenFile, HasToken: c.Token != "",
			Fingerprint: c.Fingerprint, Cert: c.Cert, Key: c.Key})
	}
	for i := range list {
		list[i].InEffect = list[i].Name == now
	}
	return list, nil
}

func (c namedContext) place() string {
	if c.Name == contexts.Default {
		return ""
	}
	return contexts.Context{URL: c.URL, Machine: c.Machine, Host: c.Host}.Place()
}

// token describes the place of the token.
func (c namedContext) token() string {
	if c.HasToken {
		return "stored"
	}
	return c.TokenFile
}

func newContextShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context, or the one in effect",
		Long: "Show a context. Without NAME show the one in effect: of --context, of FORKD_CONTEXT, or the choice\n" +
			"of `forkd context use`. With --quiet print its name only.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeContextNames(true),
		RunE: func(_ *cobra.Command, args []string) error {
			name, err := a.flags.ContextName()
			if len(args) > 0 {
				name, err = args[0], nil
			}
			if err != nil {
				return exit.UsageError{Err: err}
			}
			list, err := userContexts{a}.list()
			if err != nil {
				return err
			}
			for _, c := range list {
				if c.Name == name {
					return userContexts{a}.show(c)
				}
			}
			_, err = contexts.File{}.Get(name)
			return err
		},
	}
}

func (a userContexts) show(c namedContext) error {
	switch {
	case a.app.JSON:
		return a.app.Value(c)
	case a.app.Quiet:
		return a.app.Line("%s", c.Name)
	}
	current := "no"
	if c.Current {
		current = "yes"
	}
	err := a.app.Facts("name", c.Name, "current", current, "description", c.Description, "daemon", c.place(),
		"token", c.token(), "TLS fingerprint", c.Fingerprint, "client certificate", c.Cert, "its key", c.Key)
	for _, v := range []string{"FORKD_URL", "FORKD_MACHINE"} {
		if os.Getenv(v) != "" && a.app.flags.Context == "" {
			a.app.Note("%s has precedence over the choice of a context", v)
		}
	}
	return err
}

func newContextRmCommand(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "rm NAME...",
		Aliases:           []string{"remove"},
		Short:             "Remove contexts",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeContextNames(false),
		RunE: func(_ *cobra.Command, args []string) error {
			errs := make([]error, len(args))
			for i, name := range args {
				if err := contexts.CheckName(name); err != nil {
					errs[i] = exit.UsageError{Err: err}
					continue
				}
				errs[i] = changeContexts(func(f *contexts.File) error { return f.Remove(name, force) })
			}
			return a.ended("removed", args, errs)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove the current context too")
	return cmd
}

func completeContextNames(builtIn bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names := endpoint.ContextNames()
		switch {
		case !builtIn:
			names = names[1:]
		case len(args) > 0:
			names = nil
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

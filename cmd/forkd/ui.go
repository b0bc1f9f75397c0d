package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/webui"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/api/ui"
)

// uiPort is the port of the page if no other was chosen and it is free.
const uiPort = 8890

func newUICommand(a *app) *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the web page: the fork tree in a browser",
		Long: "Serve the web page on this host until Ctrl-C. It shows the fork tree, and opens consoles,\n" +
			"terminals and files of sandboxes. Browsers log in with the printed code, and act as you do on\n" +
			"the command line.\n\n" +
			"A daemon on a TCP address serves the same page at /ui/, where users log in with a token or key.",
		Example: "  forkd ui\n  forkd ui --port 9000 --url https://forkd.example.com:8889",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return exit.UsageError{Err: fmt.Errorf("--port is %d, want 0 to 65535", port)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return serveUI(ctx, a, c, port, cmd.Flags().Changed("port"))
			})
		},
	}
	cmd.Flags().IntVar(&port, "port", uiPort, "listen on loopback `PORT`; 0: a free one")
	return cmd
}

func serveUI(ctx context.Context, a *app, c *client.Client, port int, chosen bool) error {
	if err := c.Health(ctx); err != nil {
		return err
	}
	listen := func(port int) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	l, err := listen(port)
	if err != nil && !chosen {
		l, err = listen(0)
	}
	if err != nil {
		return hints.With(codedError{fmt.Errorf("cannot listen here: %w", err), api.CodeConflict},
			"choose another port; --port 0 takes a free one")
	}
	s := webui.New(client.Forward(c))
	if err := uiReady(a, "http://"+l.Addr().String()+ui.Path, s.Code()); err != nil {
		l.Close()
		return err
	}
	return s.Serve(ctx, l)
}

func uiReady(a *app, url, code string) error {
	if a.JSON {
		return a.Value(map[string]string{"url": url, "code": code})
	}
	return a.Line("%s\ncode: %s", url, code)
}

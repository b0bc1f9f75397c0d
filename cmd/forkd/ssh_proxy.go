package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/sshbridge"
)

func newSSHProxyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "proxy ID",
		Short: "Serve SSH for a sandbox on standard input and output",
		Long: "Serve SSH for a sandbox on standard input and output. An SSH client runs this as its ProxyCommand.\n" +
			"`forkd ssh config` prints the options.",
		Example:           "  ssh -o 'ProxyCommand forkd ssh proxy %n' sb-5f3a-0001.forkd",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := strings.TrimSuffix(args[0], sshbridge.Suffix)
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return proxySSH(ctx, c, id)
			})
		},
	}
}

// proxyEnd limits the time that the programs of a lost connection get to end.
const proxyEnd = 8 * time.Second

func proxySSH(ctx context.Context, c *client.Client, id string) error {
	if _, err := c.Sandbox(ctx, id); err != nil {
		return err // a clearer error than that of a broken handshake
	}
	file, err := sshSecret()
	if err != nil {
		return err
	}
	secret, err := sshbridge.Secret(file)
	if err != nil {
		return err
	}
	key, err := sshbridge.HostKey(secret, id)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP) // ssh sends it when it ends, and closes the pipe, too
	served := make(chan error, 1)
	go func() { served <- sshbridge.Serve(ctx, stdio{os.Stdin, os.Stdout}, key, sshSandbox{c, id}) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// A blocked read of standard input cannot be interrupted, so Serve may not return.
	select {
	case err := <-served:
		return err
	case <-time.After(proxyEnd):
		return context.Cause(ctx)
	}
}

// stdio is standard input and output as one stream.
type stdio struct {
	io.ReadCloser
	out io.WriteCloser
}

func (s stdio) Write(b []byte) (int, error) { return s.out.Write(b) }

func (s stdio) Close() error { return errors.Join(s.ReadCloser.Close(), s.out.Close()) }

// sshSandbox is a sandbox of a daemon for an SSH connection.
type sshSandbox struct {
	c  *client.Client
	id string
}

func (s sshSandbox) Exec(ctx context.Context, opt client.ExecOptions) (client.ExecStatus, error) {
	return s.c.ExecStream(ctx, s.id, opt)
}

func (s sshSandbox) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return s.c.DialPort(ctx, s.id, port)
}

func newSSHHostKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "host-key ID",
		Short: "Print a sandbox's SSH host key as a line of known_hosts",
		Long: "Print the SSH host key of a sandbox as a line of known_hosts(5). Each sandbox has a key of its own,\n" +
			"derived from its ID and a secret of this user. ssh runs this as its KnownHostsCommand.",
		Example: "  forkd ssh host-key sb-5f3a-0001",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := sshSecret()
			if err != nil {
				return err
			}
			secret, err := sshbridge.Secret(file)
			if err != nil {
				return err
			}
			key, err := sshbridge.HostKey(secret, strings.TrimSuffix(args[0], sshbridge.Suffix))
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), sshbridge.KnownHost(args[0], key.PublicKey()))
			return err
		},
	}
}

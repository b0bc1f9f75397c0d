//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// token returns the token clients must show: the one in --token-file, or a new one if there are TCP
// addresses, because every user of the host can reach them.
func (o serveOptions) token() (token string, made bool, err error) {
	if o.tokenFile != "" {
		token, err = readToken(o.tokenFile)
		return token, false, err
	}
	if !slices.ContainsFunc(o.listen, func(address string) bool { return strings.HasPrefix(address, "tcp:") }) &&
		!slices.ContainsFunc(o.sockets, func(l net.Listener) bool { return l.Addr().Network() == "tcp" }) {
		return "", false, nil
	}
	token, err = endpoint.NewToken()
	return token, true, err
}

// leaveToken writes a new token to a file for as long as the daemon runs.
func leaveToken(run, token string, listeners []listen.Listener, log *slog.Logger, opened *undo.Stack) error {
	var addresses []string
	for _, l := range listeners {
		if !strings.HasPrefix(l.URL, "unix:") {
			addresses = append(addresses, l.URL)
		}
	}
	remove, err := endpoint.WriteToken(run, token, addresses)
	if err != nil {
		return err
	}
	opened.Push(remove)
	log.Info("TCP clients must send a token", "file", endpoint.TokenFile(run))
	return nil
}

func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if err := auth.CheckToken(token); err != nil {
		return "", exit.UsageError{Err: fmt.Errorf("--token-file %s: %w", path, err)}
	}
	return token, nil
}

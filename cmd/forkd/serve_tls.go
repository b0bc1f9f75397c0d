//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// tlsOptions are the flags for TLS with TCP clients.
type tlsOptions struct {
	cert, key, clientCA string
	selfSigned, plain   bool
}

func (o *tlsOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.cert, "tls-cert", "",
		"present the certificate chain in `FILE` to TCP clients; it is reloaded when changed")
	f.StringVar(&o.key, "tls-key", "", "read the certificate's key from `FILE`")
	f.BoolVar(&o.selfSigned, "tls-self-signed", false,
		"make a certificate at the first start, and print its fingerprint for --tls-fingerprint of clients")
	f.StringVar(&o.clientCA, "tls-client-ca", "",
		"require client certificates signed by an authority in `FILE`")
	f.BoolVar(&o.plain, "plain-http", false,
		"allow TCP addresses beyond loopback without TLS; tokens and data can be read on the network")
}

func (o *tlsOptions) complete() error {
	switch {
	case (o.cert == "") != (o.key == ""):
		return exit.UsageError{Err: errors.New("--tls-cert and --tls-key go together")}
	case o.cert != "" && o.selfSigned:
		return exit.UsageError{Err: errors.New("--tls-cert and --tls-self-signed exclude each other")}
	case o.clientCA != "" && o.cert == "" && !o.selfSigned:
		return exit.UsageError{Err: errors.New("--tls-client-ca goes with --tls-cert or --tls-self-signed")}
	case o.plain && (o.cert != "" || o.selfSigned):
		return exit.UsageError{Err: errors.New("--plain-http and a certificate exclude each other")}
	}
	return nil
}

// config returns the servers' TLS configuration, or nil for plain HTTP.
func (o *tlsOptions) config(data string, log *slog.Logger) (*tls.Config, error) {
	cert, key := o.cert, o.key
	if o.selfSigned {
		var err error
		if cert, key, err = tlscert.Made(filepath.Join(data, "tls")); err != nil {
			return nil, err
		}
	}
	if cert == "" {
		return nil, nil
	}
	files, err := tlscert.Open(cert, key, log)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	c, err := files.Config(o.clientCA)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	log.Info("TCP clients are spoken to over TLS", "fingerprint", files.Fingerprint())
	return c, nil
}

// bind binds the addresses. Keys are opened later, because the engine must hold the data directory
// first.
func (o *serveOptions) bind(ctx context.Context, token string, log *slog.Logger,
	opened *undo.Stack) ([]listen.Listener, error) {
	binding := listen.Binding{Token: token, Plain: o.tls.plain}
	var err error
	if binding.Group, err = o.socketGroupID(); err != nil {
		return nil, err
	}
	if binding.TLS, err = o.tls.config(o.data, log); err != nil {
		return nil, err
	}
	all, err := o.adopt(binding)
	if err != nil {
		return nil, err
	}
	for _, address := range o.listen {
		l, err := binding.Listen(ctx, address)
		if errors.Is(err, listen.ErrPlain) {
			err = hints.With(fmt.Errorf("--listen: %w", err), "give --tls-cert and --tls-key, or --tls-self-signed; "+
				"--plain-http allows it on a protected network")
		}
		if err != nil && localCode(err) == api.CodeConflict {
			return nil, hints.With(err, "end what listens there, or choose another port")
		}
		if err != nil {
			return nil, exit.UsageError{Err: err}
		}
		opened.Push(func() { l.Close() }) // a second Close, after the server's own, is harmless
		all = append(all, l)
	}
	return all, nil
}

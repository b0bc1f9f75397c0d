//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/net/upstream"
)

// upstreamOptions are the flags for the operator's proxy, of the daemon and of the machine's
// daemon.
type upstreamOptions struct {
	url, file string
}

func (o *upstreamOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "net-upstream-proxy", "",
		"route sandboxes' TCP through the proxy `URL`, socks5://HOST[:PORT] or http://HOST:PORT; UDP is refused "+
			"(default: none)")
	f.StringVar(&o.file, "net-upstream-proxy-file", "",
		"read a proxy URL with a password from `FILE`, such as socks5://USER:PASSWORD@HOST[:PORT]")
}

// errProxyPassword refuses a password in an argument, because every user of the host can read a
// process's arguments.
var errProxyPassword = errors.New("the URL has a password, visible to other users: use --net-upstream-proxy-file")

// complete checks the proxy, and reads its file.
func (o *upstreamOptions) complete() error {
	flag := "--net-upstream-proxy"
	switch {
	case o.url != "" && o.file != "":
		return exit.UsageError{Err: errors.New("--net-upstream-proxy and --net-upstream-proxy-file: want one of them")}
	case o.file != "":
		flag = "--net-upstream-proxy-file " + o.file
		b, err := os.ReadFile(o.file)
		if err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-upstream-proxy-file: %w", err)}
		}
		o.url = strings.TrimSpace(string(b))
	case o.url == "":
		return nil
	}
	p, err := upstream.Parse(o.url)
	if err == nil && o.file == "" && p.Secret() {
		err = errProxyPassword
	}
	if err != nil {
		return exit.UsageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	return nil
}

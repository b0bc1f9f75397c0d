package forkcmd

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/tokencall"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

// tokenName is the command that prints an identity token.
const tokenName = "forkd-token" // #nosec G101 -- a name

const (
	tokenTimeout   = 30 * time.Second
	maxTokenAnswer = 64 << 10
)

// token prints an identity token of this sandbox.
func (c command) token(args []string) (int, error) {
	fs := flag.NewFlagSet(tokenName, flag.ContinueOnError)
	audience := fs.String("audience", "", "the service that will check the token, such as sts.example.com")
	asJSON := fs.Bool("json", false, "print one JSON object with the token and its end")
	rest, err := c.parse(fs, tokenName+" --audience NAME [--json]", args)
	if err != nil {
		return 0, err
	}
	if len(rest) > 0 || *audience == "" {
		return 0, usagef("want --audience NAME, the service that will check the token")
	}
	a, err := c.askToken(*audience)
	if err != nil {
		return 0, err
	}
	if *asJSON {
		return exitOK, json.NewEncoder(c.stdout).Encode(a)
	}
	fmt.Fprintln(c.stdout, a.Token)
	return exitOK, nil
}

// askToken asks the agent.
func (c command) askToken(audience string) (a tokenwire.Answer, err error) {
	hc := http.Client{Timeout: tokenTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.tokens)
		},
	}}
	res, err := hc.Get("http://forkd" + tokencall.Path + "?" + url.Values{"audience": {audience}}.Encode())
	if err != nil {
		return a, tokenwire.Errorf(tokenwire.Unavailable, "ask the agent: %v", err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, maxTokenAnswer)).Decode(&a); err != nil {
		return a, fmt.Errorf("ask the agent: %w", err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}

// exitOfToken returns the exit code of an error of the command.
func exitOfToken(e *tokenwire.Error) int {
	switch e.Code {
	case tokenwire.Invalid:
		return exitUsage
	case tokenwire.Denied:
		return exitDenied
	case tokenwire.Limit:
		return exitBusy
	}
	return exitFailed
}

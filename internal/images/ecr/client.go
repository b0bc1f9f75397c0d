package ecr

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

const (
	target   = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
	question = "{}"

	attempts = 3
)

// Client asks ECR for passwords. The zero value is ready. Its fields are for tests.
type Client struct {
	// Transport returns the transport for a host. If nil, it is that of registries, with their proxies.
	Transport func(host string) *http.Transport
	// Timeout is for all attempts of a call; 30 s if zero.
	Timeout time.Duration
	// Pause is before the second attempt, and twice that before the third; 1 s if zero.
	Pause time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Login returns the name and the password of ECR in the keys' region. It returns an error for keys that cannot be for
// the registry of a host.
func (c Client) Login(ctx context.Context, host string, k Keys) (Login, error) {
	if err := k.Check(host); err != nil {
		return Login{}, err
	}
	api, err := apiHost(k.Region)
	if err != nil {
		return Login{}, err
	}
	c = c.complete()
	client, end := c.clientOf(api)
	defer end()
	within, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	l, err := c.repeat(within, client, api, k)
	if err != nil && ctx.Err() != nil {
		return Login{}, context.Cause(ctx)
	}
	if err != nil {
		return Login{}, fmt.Errorf("ask %s for the password of the registry: %w", api, err)
	}
	return l, nil
}

func (c Client) complete() Client {
	if c.Transport == nil {
		c.Transport = ociimage.Transport
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Pause <= 0 {
		c.Pause = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// clientOf returns a client for one call, which follows no redirect, and a function to close its connections.
func (c Client) clientOf(host string) (*http.Client, func()) {
	t := c.Transport(host)
	t.MaxResponseHeaderBytes = maxAnswer
	t.DialContext = notHere(net.JoinHostPort(host, "443"), t.DialContext)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, t.CloseIdleConnections
}

// repeat asks again after temporary failures.
func (c Client) repeat(ctx context.Context, client *http.Client, host string, k Keys) (l Login, err error) {
	for left := attempts; ; {
		l, err = c.ask(ctx, client, host, k)
		left--
		var again temporary
		if err == nil || left == 0 || !errors.As(err, &again) || !ctxsleep.For(ctx, c.Pause) {
			return l, err
		}
		c.Pause *= 2
	}
}

// ask sends the request once.
func (c Client) ask(ctx context.Context, client *http.Client, host string, k Keys) (Login, error) {
	r, err := c.request(ctx, host, k)
	if err != nil {
		return Login{}, err
	}
	res, err := client.Do(r)
	if err != nil {
		return Login{}, unreachable(ctx, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Login{}, unreachable(ctx, err)
	case len(b) > maxAnswer:
		return Login{}, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case res.StatusCode != http.StatusOK:
		return Login{}, refusal(res.StatusCode, res.Header.Get("X-Amzn-Errortype"), b)
	}
	return parse(b, c.Now())
}

// request returns a signed request.
func (c Client) request(ctx context.Context, host string, k Keys) (*http.Request, error) {
	u := url.URL{Scheme: "https", Host: host, Path: "/"}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(question))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", target)
	sum := sha256.Sum256([]byte(question))
	keys := aws.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey}
	// A signer remembers a derived key by the key's ID alone. With one for all, tenants could use each other's keys.
	err = v4.NewSigner().SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), "ecr", k.Region, c.Now())
	if err != nil {
		return nil, errors.New("the request cannot be signed")
	}
	return r, nil
}

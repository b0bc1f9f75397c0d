package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/kube/router"
	"github.com/forkd/forkd/internal/leaf/keyfile"
)

// routerOptions are the flags of agent-sandbox's router in the gateway.
type routerOptions struct {
	key, auth string
}

// Values of --router-auth.
const (
	authKubernetes = "kubernetes"
	authNone       = "none"
)

func (o *routerOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.key, "router-key-file", "",
		"serve agent-sandbox's router with the key in `FILE`, the operator's (default: no router)")
	f.StringVar(&o.auth, "router-auth", authKubernetes,
		"check callers of the router by `WAY`: kubernetes (their token) or none (everyone may use all sandboxes)")
}

func (o *routerOptions) complete() error {
	if o.auth != authKubernetes && o.auth != authNone {
		return fmt.Errorf("--router-auth %q: want kubernetes or none", o.auth)
	}
	return nil
}

// start returns the router in front of a gateway, and a function that ends it.
func (o *routerOptions) start(
	g *gateway.Gateway, cluster clusterOptions, log *slog.Logger,
) (http.Handler, func(), error) {
	token, err := readKey("--router-key-file", o.key)
	if err != nil {
		return nil, nil, err
	}
	c := router.Config{Gateway: g, Log: log}
	if o.auth == authKubernetes {
		k, err := callers(cluster)
		if err != nil {
			return nil, nil, err
		}
		c.Allowed = k.Allowed
	}
	inside := router.NewInside(g)
	if c.Forkd, err = inside.Client(token); err != nil {
		return nil, nil, err
	}
	var running sync.WaitGroup
	running.Go(inside.Run)
	return router.New(c), func() {
		_ = inside.Close()
		running.Wait()
	}, nil
}

// callers returns the checks of callers. Requests have the callers' tokens, and no credential of the gateway.
func callers(cluster clusterOptions) (*router.Kubernetes, error) {
	conf, err := cluster.rest()
	if err != nil {
		return nil, err
	}
	rt, err := rest.TransportFor(rest.AnonymousClientConfig(conf))
	return &router.Kubernetes{URL: conf.Host, HTTP: &http.Client{Transport: rt}}, err
}

// readKey reads a file with one key, named by a flag.
func readKey(flag, path string) (string, error) {
	key, err := keyfile.Read(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return key, nil
}

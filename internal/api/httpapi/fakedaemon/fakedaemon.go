// Package fakedaemon serves the real REST API over the fake engine, on a Unix socket and a TCP
// port. Tests of clients in other processes use it: the command line and the SDKs. The trap: the
// socket is in a directory of its own, because the path of a test's directory may be too long for
// a socket.
package fakedaemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/api/routes/sandboxes"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/domain/workspace"
	layerstore "github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/volume"
)

// Token is the daemon's token.
const Token = "0123456789abcdef0123456789abcdef"

// Daemon is a running daemon.
type Daemon struct {
	Engine   *fakeengine.Engine // fake engine behind both addresses
	Unix     string             // URL of its socket, which needs no token
	TCP      string             // URL, which needs Token
	AuditLog string             // path

	dir    string
	record *audit.Log
	stop   context.CancelFunc
	ended  chan struct{}
}

// peers lets the daemon copy snapshots from others on this host, which have the same token.
func (d *Daemon) peers() (*peers.Client, error) {
	file := filepath.Join(d.dir, "peer.key")
	if err := os.WriteFile(file, []byte(Token), 0o600); err != nil {
		return nil, err
	}
	return peers.New(peers.Config{Allow: []string{"127.0.0.1"}, KeyFile: file, Plain: true, Wait: 10 * time.Millisecond})
}

// Outside is a handler of other APIs with facts about sandboxes.
type Outside interface {
	// Carrier has the facts.
	Carrier() sandboxes.Carrier
	// Use gives the handler the daemon's server.
	Use(*httpapi.Server)
}

// Start starts a daemon with the named images. The caller closes it.
func Start(images ...string) (*Daemon, error) { return StartNode(daemon.Node{}, nil, images...) }

// StartNode starts the daemon of a node of a cluster. outside may be nil; otherwise it returns the handler of the requests
// outside the native API.
func StartNode(node daemon.Node, outside func(*fakeengine.Engine) httpapi.Ingress, images ...string) (*Daemon, error) {
	return start(node, outside, Front{Binding: listen.Binding{Token: Token}}, images)
}

// Front is how a daemon is reached.
type Front struct {
	// Binding has the token, and the certificate for TCP.
	Binding listen.Binding
	// Addresses are those of clients. Without them the daemon has a socket, and a port of loopback.
	Addresses []string
	// KeysFile has keys that are shared with other daemons.
	KeysFile string
}

// ServeNode starts the daemon of a node at addresses of its own.
func ServeNode(node daemon.Node, front Front, images ...string) (*Daemon, error) {
	return start(node, nil, front, images)
}

func start(node daemon.Node, outside func(*fakeengine.Engine) httpapi.Ingress, front Front,
	images []string) (*Daemon, error) {
	fakes := fakeengine.NewImages(images...)
	d := &Daemon{Engine: fakeengine.New(fakes), ended: make(chan struct{})}
	d.Engine.NodeKey = node.Key
	var err error
	if d.dir, err = os.MkdirTemp("", "forkd-fake-"); err != nil {
		return nil, err
	}
	options, err := d.options(front.KeysFile)
	if err != nil {
		return nil, err
	}
	options.Images, options.Node = fakes, node
	if options.Peers, err = d.peers(); err != nil {
		return nil, err
	}
	if outside != nil {
		options.Ingress = outside(d.Engine)
	}
	also, _ := options.Ingress.(Outside)
	if also != nil {
		options.E2B = also.Carrier()
	}
	server := httpapi.New(options)
	if also != nil {
		also.Use(server)
	}
	var listeners []listen.Listener
	if len(front.Addresses) == 0 {
		front.Addresses = []string{"unix://" + filepath.Join(d.dir, "s"), "tcp://127.0.0.1:0"}
	}
	front.Binding.Keys = options.Keys
	for _, address := range front.Addresses {
		l, err := front.Binding.Listen(context.Background(), address)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		if l.Access.Local {
			d.Unix = l.URL
		} else {
			d.TCP = l.URL
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() {
		defer close(d.ended)
		_ = server.Run(ctx, listeners, 100*time.Millisecond)
	}()
	return d, nil
}

// options opens the daemon's files.
func (d *Daemon) options(keysFile string) (httpapi.Options, error) {
	o := httpapi.Options{Engine: fakeengine.Roles(d.Engine), Drain: d.Engine.Drain,
		Version: api.VersionInfo{Version: "1.2.3", Domain: "forkd.localhost"}}
	var err error
	if d.record, err = audit.Open(audit.Config{Path: filepath.Join(d.dir, "audit.log")}); err != nil {
		return o, err
	}
	d.AuditLog = d.record.Path()
	o.Audit, o.AuditFile = d.record, d.AuditLog
	o.Keys, err = keys.Open(keys.Config{Path: filepath.Join(d.dir, "keys.json"), Shared: keysFile,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return o, err
	}
	if o.Published, err = tenancy.OpenPublished(filepath.Join(d.dir, "published.json")); err != nil {
		return o, err
	}
	if o.SecretStore, err = openSecrets(d.dir); err != nil {
		return o, err
	}
	if d.Engine.Volumes, err = OpenVolumes(d.dir); err != nil {
		return o, err
	}
	o.Volumes = volumes.Tenants{Store: d.Engine.Volumes}
	if d.Engine.Networks, err = privatenets.Open(filepath.Join(d.dir, "networks.json"), time.Now); err != nil {
		return o, err
	}
	o.Networks = d.Engine.Networks
	d.Engine.Secrets = secrets.Source{Store: o.SecretStore}
	o.Weights, err = tenancy.OpenWeights(filepath.Join(d.dir, "tenants.json"), func(string, int) error { return nil })
	if err != nil {
		return o, err
	}
	o.Workspaces, err = workspace.Open(filepath.Join(d.dir, "workspaces.json"), time.Now)
	return o, err
}

// OpenVolumes opens a store of volumes in a directory of its own layers.
func OpenVolumes(dir string) (*volume.Store, error) {
	layers, err := layerstore.Open(filepath.Join(dir, "layers"), layerstore.Options{})
	if err != nil {
		return nil, err
	}
	return volume.Open(volume.Config{Dir: filepath.Join(dir, "volumes"), Pins: layers, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
}

// openSecrets opens a store of secrets with a new key.
func openSecrets(dir string) (*secrets.Store, error) {
	path := filepath.Join(dir, "secrets.key")
	if err := secrets.NewKeyFile(path); err != nil {
		return nil, err
	}
	key, err := secrets.ReadKeyFile(path, false)
	if err != nil {
		return nil, err
	}
	return secrets.Open(secrets.Config{Dir: filepath.Join(dir, "secrets"), Key: key})
}

// Close stops the daemon and removes its files.
func (d *Daemon) Close() {
	d.stop()
	<-d.ended
	d.Engine.Close()
	_ = d.record.Close(time.Minute)
	os.RemoveAll(d.dir)
}

package network

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/mirrors"
)

// Hosts with packages. They share one address, like hosts of the same content delivery network, and
// differ only by name.
const (
	debHost     = "deb.example.com"
	pypiHost    = "pypi.example.com"
	npmHost     = "npm.example.com"
	strangeHost = "pypi.example.org" // the same as pypiHost, but not allowed

	mirrorAddr = "151.101.2.132"
)

// trusted holds the mirrors' keys for guests.
type trusted struct{ authority, debianKey []byte }

// serveMirrors serves the mirrors, over TLS only.
func serveMirrors(t testing.TB, in *nettest.Internet) trusted {
	t.Helper()
	debian, err1 := mirrors.NewDebian()
	pypi, err2 := mirrors.NewPyPI()
	npm, err3 := mirrors.NewNPM()
	authority, err4 := mirrors.NewAuthority()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	config, err := authority.TLS(debHost, pypiHost, npmHost, strangeHost)
	if err != nil {
		t.Fatal(err)
	}
	hosts := http.NewServeMux()
	hosts.Handle(debHost+"/", debian)
	hosts.Handle(pypiHost+"/", pypi)
	hosts.Handle(strangeHost+"/", pypi)
	hosts.Handle(npmHost+"/", npm)
	s := &http.Server{Handler: hosts, ErrorLog: log.New(io.Discard, "", 0)} // for handshakes meant to fail
	l := tls.NewListener(in.Listen(t, net.JoinHostPort(mirrorAddr, "443")), config)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return trusted{authority.PEM, debian.Key}
}

// installPatience limits one command. Where CPUs are emulated, the start of Node.js alone is slow.
const installPatience = 5 * time.Minute

// authorityFile is the path of the authority's certificate in the guest.
const authorityFile = "/usr/local/share/ca-certificates/mirrors.crt"

// installEnv holds a user's variables for a private mirror with an authority unknown to the image.
var installEnv = map[string]string{
	"DEBIAN_FRONTEND":     "noninteractive",
	"PIP_CERT":            authorityFile,
	"PIP_INDEX_URL":       "https://" + pypiHost + "/simple/",
	"npm_config_cafile":   authorityFile,
	"npm_config_registry": "https://" + npmHost + "/",

	"npm_config_audit":           "false",
	"npm_config_fund":            "false",
	"npm_config_update_notifier": "false",
}

// If only the mirrors are allowed, packages and their dependencies are installed, and run.
func TestPackagesAreInstalledThroughThePolicy(t *testing.T) {
	w := shared(t)
	id := w.fork(t, parentTag, api.NetworkPolicy{Allow: []string{debHost + ":443", pypiHost + ":443", npmHost + ":443"}}).ID
	w.put(t, id, authorityFile, bytes.NewReader(w.far.mirrors.authority))
	t.Run("an authority that is not known is not trusted", func(t *testing.T) {
		if r := w.install(t, id, "user", "curl -sS https://"+pypiHost+"/simple/"); r.ExitCode != curlUntrusted {
			t.Errorf("curl: exit code %d, want %d: %s%s", r.ExitCode, curlUntrusted, r.Stdout, r.Stderr)
		}
		w.wantInstalled(t, id, "user", "curl -sS --cacert "+authorityFile+" https://"+pypiHost+"/simple/", mirrors.Hello)
	})
	t.Run("apt-get", func(t *testing.T) {
		kvmtest.Soak(t)
		const key = "/etc/apt/keyrings/mirrors.asc"
		w.put(t, id, key, bytes.NewReader(w.far.mirrors.debianKey))
		w.put(t, id, "/etc/apt/apt.conf.d/90mirrors", strings.NewReader(`Acquire::https::CAInfo "`+authorityFile+`";`+"\n"))
		w.root(t, id, "rm -f /etc/apt/sources.list.d/*")
		w.put(t, id, "/etc/apt/sources.list", strings.NewReader("deb [signed-by="+key+"] https://"+debHost+"/debian stable main\n"))
		w.wantInstalled(t, id, "root", "apt-get -q update -o APT::Update::Error-Mode=any", debHost)
		w.wantInstalled(t, id, "root", "apt-get -q -y install "+mirrors.Hello, mirrors.Words)
		w.wantInstalled(t, id, "user", mirrors.Hello, mirrors.DebianSays)
	})
	t.Run("pip", func(t *testing.T) {
		w.wantInstalled(t, id, "root", "pip install --no-cache-dir "+mirrors.Hello, "Successfully installed")
		// The interpreter was warm before the module existed.
		if got := strings.TrimSpace(w.run(t, id, "import forkd_hello; print(forkd_hello.says())")); got != mirrors.PyPISays {
			t.Errorf("the module says %q, want %q", got, mirrors.PyPISays)
		}
	})
	t.Run("npm", func(t *testing.T) {
		kvmtest.Soak(t)
		w.putNode(t, id)
		w.wantInstalled(t, id, "user", "mkdir ~/app && cd ~/app && npm install "+mirrors.Hello, "added 2 packages")
		w.wantInstalled(t, id, "user", "~/app/node_modules/.bin/"+mirrors.Hello, mirrors.NPMSays)
	})
	t.Run("a mirror that is not allowed", func(t *testing.T) {
		r := w.install(t, id, "user", "pip install --no-cache-dir --retries 0 --target /tmp/strange --index-url https://"+
			strangeHost+"/simple/ "+mirrors.Hello)
		if r.ExitCode == 0 {
			t.Errorf("pip installed from %s: %s%s", strangeHost, r.Stdout, r.Stderr)
		}
		r = w.install(t, id, "user", "curl -sS http://192.0.0.1/denied")
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, strangeHost) {
			t.Errorf("the guest's page: exit code %d, and not a word of %s: %s%s", r.ExitCode, strangeHost, r.Stdout, r.Stderr)
		}
	})
}

// curlUntrusted is curl's exit code for an untrusted certificate.
const curlUntrusted = 60

// install runs a command in a sandbox as users do, with a long timeout.
func (w *world) install(t *testing.T, id, user, command string) api.ExecResponse {
	t.Helper()
	began := time.Now()
	r, err := w.Client.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", command}, User: user,
		Env: installEnv, TimeoutSecs: installPatience.Seconds()})
	if err != nil {
		t.Fatalf("%s: %q: %v", id, command, err)
	}
	t.Logf("%.1f s: %s", time.Since(began).Seconds(), command)
	return r
}

// wantInstalled runs a command, which must succeed, and searches its output for a text.
func (w *world) wantInstalled(t *testing.T, id, user, command, want string) {
	t.Helper()
	if r := w.install(t, id, user, command); r.ExitCode != 0 || !strings.Contains(r.Stdout, want) {
		t.Fatalf("%q: exit code %d, want 0 and %q\nstdout: %s\nstderr: %s\nnetwork log:\n%s",
			command, r.ExitCode, want, r.Stdout, r.Stderr, w.refusals(t, id))
	}
}

// putNode installs Node.js with npm in a sandbox. The image does not have them.
func (w *world) putNode(t *testing.T, id string) {
	t.Helper()
	for name, to := range map[string]string{"node": "/usr/local/bin/node", "npm.tgz": "/tmp/npm.tgz"} {
		f, err := os.Open(kvmtest.Fixture(t, name))
		if err != nil {
			t.Fatal(err)
		}
		w.put(t, id, to, f)
		f.Close()
	}
	w.root(t, id, `set -e
		chmod 755 /usr/local/bin/node
		mkdir -p /usr/local/lib/node_modules/npm && cd /usr/local/lib/node_modules/npm
		tar -xzf /tmp/npm.tgz --strip-components=1 --no-same-owner --exclude=package/docs --exclude=package/man
		ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm`)
}

// put writes a file in a sandbox as root.
func (w *world) put(t *testing.T, id, path string, content io.Reader) {
	t.Helper()
	began := time.Now()
	if err := w.Client.Upload(t.Context(), id, path, "root", content); err != nil {
		t.Fatalf("%s: write %s: %v", id, path, err)
	}
	t.Logf("%.1f s: write %s", time.Since(began).Seconds(), path)
}

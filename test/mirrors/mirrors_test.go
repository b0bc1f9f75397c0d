package mirrors_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/test/mirrors"
)

// tool reports whether a program is on this host. The tests here are for changes of a mirror.
// test/network shows that guests can install from it, with an image that has all tools.
func tool(t *testing.T, name string) bool {
	t.Helper()
	_, err := exec.LookPath(name)
	if err != nil {
		t.Logf("%s is not installed here: not tried", name)
	}
	return err == nil
}

// serve serves a mirror on this host, and returns its address and the file of its authority.
func serve(t *testing.T, h http.Handler) (url, authority string) {
	t.Helper()
	a, err := mirrors.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	host, _, _ := net.SplitHostPort(s.Listener.Addr().String())
	if s.TLS, err = a.TLS(host); err != nil {
		t.Fatal(err)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, write(t, t.TempDir(), "ca.pem", a.PEM)
}

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a program, which must succeed, and returns its output.
func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, errs, err := try(t, dir, env, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s\n%s", args, err, out, errs)
	}
	return out
}

// try runs a program without this host's own variables for it, such as other authorities.
func try(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8"}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// apt-get and dpkg install into a root made by the test, and need no root rights for it.
func TestAptInstallsFromTheRepository(t *testing.T) {
	if !tool(t, "apt-get") || !tool(t, "dpkg") {
		return
	}
	repo, err := mirrors.NewDebian()
	if err != nil {
		t.Fatal(err)
	}
	url, authority := serve(t, repo)
	root := t.TempDir()
	for _, d := range []string{"etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d",
		"var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt", "var/lib/dpkg/info",
		"var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	key := write(t, root, "etc/apt/keyrings/test.asc", repo.Key)
	write(t, root, "etc/apt/sources.list", []byte("deb [signed-by="+key+"] "+url+"/debian stable main\n"))
	write(t, root, "var/lib/dpkg/status", nil)
	conf := write(t, root, "apt.conf", []byte(strings.Join([]string{
		`Dir "` + root + `";`,
		`Dir::State::status "` + root + `/var/lib/dpkg/status";`,
		`Dir::Bin::methods "/usr/lib/apt/methods";`,
		`Acquire::https::CAInfo "` + authority + `";`,
		`Acquire::https::Proxy "DIRECT";`,
		`APT::Architecture "amd64";`,
		`APT::Architectures { "amd64"; };`,
		`APT::Sandbox::User "";`,
		`APT::Update::Error-Mode "any";`,
		`DPkg::Options { "--root=` + root + `"; "--force-not-root"; "--force-script-chrootless"; "--log=/dev/null"; };`,
		`Debug::NoLocking "1";`,
	}, "\n")))
	env := []string{"APT_CONFIG=" + conf, "DEBIAN_FRONTEND=noninteractive"}
	run(t, root, env, "apt-get", "-q", "update")
	run(t, root, env, "apt-get", "-q", "-y", "install", mirrors.Hello)
	want(t, run(t, root, nil, filepath.Join(root, "usr/bin", mirrors.Hello)), mirrors.DebianSays)

	other, err := mirrors.NewDebian()
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, "etc/apt/keyrings/test.asc", other.Key)
	if _, errs, err := try(t, root, env, "apt-get", "-q", "update"); err == nil || !strings.Contains(errs, "signature verification") {
		t.Errorf("apt-get takes a release that another key has signed: %v\n%s", err, errs)
	}
}

func TestPipInstallsFromTheIndex(t *testing.T) {
	if !tool(t, "pip") || !tool(t, "python3") {
		return
	}
	index, err := mirrors.NewPyPI()
	if err != nil {
		t.Fatal(err)
	}
	url, authority := serve(t, index)
	dir := t.TempDir()
	run(t, dir, nil, "pip", "--isolated", "install", "--target", dir, "--index-url", url+"/simple/", "--cert", authority,
		"--no-cache-dir", "--disable-pip-version-check", mirrors.Hello)
	want(t, run(t, dir, []string{"PYTHONPATH=" + dir}, "python3", "-c", "import forkd_hello; print(forkd_hello.says())"),
		mirrors.PyPISays)
}

func TestNpmInstallsFromTheRegistry(t *testing.T) {
	if !tool(t, "npm") || !tool(t, "node") {
		return
	}
	registry, err := mirrors.NewNPM()
	if err != nil {
		t.Fatal(err)
	}
	url, authority := serve(t, registry)
	dir := t.TempDir()
	conf := write(t, dir, "npmrc", []byte("registry="+url+"/\ncafile="+authority+"\ncache="+dir+"/cache\n"+
		"audit=false\nfund=false\nupdate-notifier=false\nnoproxy=127.0.0.1\n"))
	write(t, dir, "package.json", []byte("{}"))
	run(t, dir, []string{"npm_config_userconfig=" + conf}, "npm", "install", mirrors.Hello)
	want(t, run(t, dir, nil, filepath.Join(dir, "node_modules/.bin", mirrors.Hello)), mirrors.NPMSays)
}

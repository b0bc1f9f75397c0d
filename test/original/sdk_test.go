package original

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

const token = "0123456789abcdef0123456789abcdef"

func TestThePythonClient(t *testing.T) {
	python, err := filepath.Abs(filepath.Join("..", "..", ".cache", "original", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skipf("%s is missing: scripts/original-sdk.sh installs it", python)
	}
	images := fakeengine.NewImages("python-numpy")
	engine := fakeengine.New(images)
	defer engine.Close()
	make := sandbox.CreateRequest{Tag: "py", Image: "python-numpy"}
	if _, err := engine.CreateSnapshot(t.Context(), make, func(sandbox.Step) {}); err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), Images: images})
	s := httptest.NewServer(server.Handler(auth.Access{Token: token}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "controller.py"))
	cmd.Env = append(os.Environ(), "FORKD_URL="+s.URL, "FORKD_TOKEN="+token, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

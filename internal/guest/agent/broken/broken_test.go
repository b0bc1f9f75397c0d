package broken

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
)

// An error is explained only after a file that existed has been removed.
func TestASandboxThatLostItsShell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sh")
	never := Watch(path)
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	had, cause := Watch(path, path+"-never"), connect.NewError(connect.CodeInvalidArgument, errors.New("no such program"))
	if err := had.Explain(cause); !errors.Is(err, cause) {
		t.Errorf("with a shell: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	err := had.Explain(cause)
	if connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "no such program") || strings.Contains(err.Error(), "invalid_argument") {
		t.Errorf("without it: %v", err)
	}
	if err := never.Explain(cause); !errors.Is(err, cause) {
		t.Errorf("an image without one: %v", err)
	}
}

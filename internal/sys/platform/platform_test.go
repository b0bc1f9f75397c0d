package platform

import (
	"errors"
	"strings"
	"testing"
)

func TestVMsRunOnLinuxOnX86Only(t *testing.T) {
	if err := Check("linux", "amd64"); err != nil {
		t.Errorf("linux/amd64: %v", err)
	}
	for _, p := range []struct{ goos, goarch string }{{"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}} {
		err := Check(p.goos, p.goarch)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), p.goos+"/"+p.goarch) {
			t.Errorf("%s/%s: %v", p.goos, p.goarch, err)
		}
	}
}

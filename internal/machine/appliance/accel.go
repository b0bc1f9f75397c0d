package appliance

import (
	"context"

	"github.com/forkd/forkd/internal/machine/hostcap"
)

// chooseAccel decides how QEMU runs the appliance: by the host's KVM only if
// that is usable and can be nested, since the appliance needs a KVM of its own.
func chooseAccel() string {
	if nestedKVM() && hostcap.QuickKVM(context.Background()).Decide().Where == hostcap.Host {
		return accelKVM
	}
	return accelTCG
}

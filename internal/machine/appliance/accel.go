package appliance

import (
	"context"

	"github.com/forkd/forkd/internal/machine/hostcap"
)

// chooseAccel selects how QEMU runs the appliance. It uses the host's KVM only if that is usable and supports
// nesting, because the appliance itself needs KVM.
func chooseAccel() string {
	if nestedKVM() && hostcap.QuickKVM(context.Background()).Decide().Where == hostcap.Host {
		return accelKVM
	}
	return accelTCG
}

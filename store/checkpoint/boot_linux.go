package checkpoint

import (
	"os"
	"strings"
)

// BootID names the running kernel instance, "" when it cannot be told: page cache written under the same id is still
// there.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

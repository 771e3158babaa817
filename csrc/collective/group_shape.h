// Where a group's ranks live, for choose().
#pragma once

#include "collective/choose.h"
#include "collective/group.h"

namespace hvdtune {

inline GroupShape shape_of(Group& group) {
  return {group.size(), static_cast<int>(group.host_sizes().size()), group.homogeneous(),
          group.arena() != nullptr};
}

}  // namespace hvdtune

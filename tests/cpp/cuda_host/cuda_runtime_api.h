// See cuda_runtime.h beside this.
#pragma once
#include "cuda_runtime.h"

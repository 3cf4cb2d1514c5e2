/* The compute limiter: placeholder that limits nothing. */
#include "limiter.h"

_Atomic unsigned limiter_mode;

void limiter_before_launch(struct launch *launch) { launch->device = -1; }
void limiter_after_launch(struct launch *launch, CUresult result) { (void)launch, (void)result; }
void limiter_capture_began(CUstream stream) { (void)stream; }
void limiter_capture_ended(CUstream stream) { (void)stream; }
void limiter_started(void) {}
void limiter_context_created(CUcontext context, CUdevice device) { (void)context, (void)device; }
void limiter_context_destroying(CUcontext context) { (void)context; }
void limiter_forked(void) {}

"use strict";
/* The workers: as they are now. */

setInterval(() => refresh($("#fleet"), location.href), 2000);
addEventListener("visibilitychange", () => refresh($("#fleet"), location.href));

"use strict";
(() => {
  // Tables: a click on a column's title sorts by it, a second click reverses the order. Missing numbers stay at the end.
  const sorted = (head, items, valueOf) => {
    const numeric = head.dataset.type !== "text";
    // Numbers start with the largest, text with the first in the alphabet.
    const start = numeric ? "descending" : "ascending";
    const back = numeric ? "ascending" : "descending";
    const wanted = head.getAttribute("aria-sort") === start ? back : start;
    const direction = wanted === "ascending" ? 1 : -1;
    for (const cell of head.parentElement.cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", wanted);
    return items.map((item) => ({ item, value: valueOf(item, numeric) })).sort((one, other) => {
      if (one.value === null || other.value === null) return (one.value === null) - (other.value === null);
      const order = numeric ? one.value - other.value : one.value.localeCompare(other.value, "en", { numeric: true });
      return direction * order;
    }).map((entry) => entry.item);
  };
  const sortBy = (table, column, head) => {
    const valueOf = (row, numeric) => {
      const cell = row.cells[column];
      if (!numeric) return cell.textContent;
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    };
    table.tBodies[0].append(...sorted(head, Array.from(table.tBodies[0].rows), valueOf));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sortBy(table, column, head));
    });
  }

  // Tables wider than the page: show that there are more columns.
  const wide = Array.from(document.querySelectorAll(".wide"));
  const markWide = () => {
    for (const frame of wide) {
      const left = frame.scrollWidth - frame.clientWidth - frame.scrollLeft;
      frame.parentElement.classList.toggle("wider", frame.scrollWidth > frame.clientWidth + 1);
      frame.classList.toggle("more", left > 1);
    }
  };
  for (const frame of wide) frame.addEventListener("scroll", markWide, { passive: true });
  window.addEventListener("resize", markWide);
  markWide();

  const byId = (id) => document.getElementById(id);
  const page = JSON.parse(byId("page-data").textContent);

  // CSV files of tables, from the page itself.
  const save = (name, text) => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(address);
  };
  for (const button of document.querySelectorAll("button.csv")) {
    const name = button.dataset.table;
    button.addEventListener("click", () => save(name, name === "images" ? imagesAsCsv() : page.csv[name]));
  }

  // Filters: rows that contain every word stay.
  const matches = (text, query) => query.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
  for (const field of document.querySelectorAll("#tables .filter")) {
    const body = field.parentElement.nextElementSibling.querySelector("tbody");
    field.addEventListener("input", () => {
      for (const row of body.rows) row.hidden = !matches(row.textContent, field.value.trim());
    });
  }

  // Image by image.
  let choose = () => {}; // shows an image of the gallery
  const STEP = 100; // rows shown at first, and added by each click
  const images = page.images;
  let order = images === null ? [] : images.rows;
  let most = STEP;
  const chosenRows = () => {
    const field = document.querySelector("#images .filter");
    const query = field === null ? "" : field.value.trim();
    return query === "" ? order : order.filter((row) => matches(row.slice(0, images.text).join(" "), query));
  };
  const imagesAsCsv = () => {
    // A text that a spreadsheet would run as a formula is prefixed with an apostrophe.
    const quoted = (value) => `"${String(value).replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
    const line = (row) => row.map((value) => (value === null ? "" : typeof value === "number" ? value : quoted(value))).join(",");
    return [images.columns, ...chosenRows()].map(line).join("\r\n") + "\r\n";
  };
  const imageCell = (value, column) => {
    const cell = document.createElement("td");
    if (column < images.text) cell.className = "text";
    if (column === 0 && Object.hasOwn(images.pictures, value) && page.gallery !== null && images.pictures[value] < page.gallery.images.length) {
      const link = document.createElement("button");
      link.type = "button";
      link.className = "link";
      link.textContent = value;
      link.addEventListener("click", () => {
        choose(images.pictures[value], false);
        byId("gallery").scrollIntoView();
      });
      cell.append(link);
    } else if (typeof value === "number") {
      cell.textContent = (Math.round(1000 * value) / 1000 + 0).toFixed(3).replace("-", "−");
    } else {
      cell.textContent = value === null ? "–" : value;
    }
    return cell;
  };
  const listImages = () => {
    const rows = chosenRows();
    byId("image-table").tBodies[0].replaceChildren(...rows.slice(0, most).map((row) => {
      const made = document.createElement("tr");
      made.append(...row.map(imageCell));
      return made;
    }));
    byId("image-count").textContent = `${Math.min(most, rows.length)} of ${rows.length} rows`;
    byId("more-images").hidden = rows.length <= most;
    markWide();
  };
  if (images !== null) {
    Array.from(byId("image-table").tHead.rows[0].cells).forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        order = sorted(head, order, (row) => row[column]);
        listImages();
      });
    });
    document.querySelector("#images .filter")?.addEventListener("input", listImages);
    byId("more-images").addEventListener("click", () => {
      most += STEP;
      listImages();
    });
    listImages();
  }

  // The gallery.
  const data = page.gallery;
  if (data === null) return;
  const list = byId("pictures");
  const sheet = byId("sheet");
  const contrast = byId("contrast");
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const state = { image: 0, models: new Set(data.start.models), methods: new Set(data.start.methods) };

  // Pixels of a picture, cached once decoded: four bytes each.
  const decoded = new Map();
  const pixels = (address) => {
    if (!decoded.has(address)) {
      const picture = new Image();
      picture.src = address;
      decoded.set(address, picture.decode().then(() => {
        const canvas = element("canvas");
        canvas.width = picture.naturalWidth;
        canvas.height = picture.naturalHeight;
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(picture, 0, 0);
        return context.getImageData(0, 0, canvas.width, canvas.height);
      }));
    }
    return decoded.get(address);
  };
  // Levels hold the sign and the square root of a value, so that small values keep their detail.
  const valuesOf = (picture) => {
    const values = new Float32Array(picture.width * picture.height);
    for (let index = 0; index < values.length; index += 1) {
      const root = (picture.data[4 * index] - 128) / 127;
      values[index] = Math.sign(root) * root * root;
    }
    return values;
  };
  const sharedLimit = (maps, percent) => {
    const total = maps.reduce((sum, values) => sum + values.length, 0);
    if (total === 0) return 1;
    const sizes = new Float32Array(total);
    let start = 0;
    for (const values of maps) {
      for (let index = 0; index < values.length; index += 1) sizes[start + index] = Math.abs(values[index]);
      start += values.length;
    }
    sizes.sort();
    return sizes[Math.min(total - 1, Math.floor((percent / 100) * total))] || 1;
  };
  const paint = (canvas, image, values, limit) => {
    canvas.width = image.width;
    canvas.height = image.height;
    const context = canvas.getContext("2d");
    const made = context.createImageData(image.width, image.height);
    for (let index = 0; index < values.length; index += 1) {
      const start = 4 * index;
      const grey = 0.299 * image.data[start] + 0.587 * image.data[start + 1] + 0.114 * image.data[start + 2];
      const paper = 255 - data.faint * (255 - grey);
      const share = Math.min(1, Math.abs(values[index]) / limit);
      const colour = values[index] > 0 ? data.positive : data.negative;
      for (let part = 0; part < 3; part += 1) {
        made.data[start + part] = Math.round(paper * (1 - share) + colour[part] * share);
      }
      made.data[start + 3] = 255;
    }
    context.putImageData(made, 0, 0);
  };
  const boxes = (image) => {
    const name = "http://www.w3.org/2000/svg";
    const drawing = document.createElementNS(name, "svg");
    drawing.setAttribute("viewBox", `0 0 ${image.width} ${image.height}`);
    drawing.setAttribute("aria-hidden", "true");
    for (const [x0, y0, x1, y1] of image.boxes) {
      for (const kind of ["under", "over"]) {
        const box = document.createElementNS(name, "rect");
        for (const [key, value] of [["x", x0], ["y", y0], ["width", x1 - x0], ["height", y1 - y0], ["class", kind]]) {
          box.setAttribute(key, value);
        }
        drawing.append(box);
      }
    }
    return drawing;
  };
  const tile = (image, caption, description) => {
    const canvas = element("canvas", { role: "img", "aria-label": description });
    const frame = element("div", { class: "frame" }, canvas, boxes(image));
    return [canvas, element("figure", { class: "tile" }, frame, element("figcaption", {}, caption))];
  };
  const missing = (caption, reason) => element(
    "figure", { class: "tile" }, element("div", { class: "missing" }, reason), element("figcaption", {}, caption),
  );
  const decision = (image, model) => {
    const prediction = image.predictions[model];
    if (image.abstained[model]) return `, abstained (label ${image.label})`;
    if (prediction === null) return "";
    return prediction === image.label ? `, predicts ${prediction}` : `, predicts ${prediction} (label ${image.label})`;
  };
  const score = (numbers) => {
    if (!numbers) return "";
    // Rounded first, and 0 added, so that small negative values are not written as −0.00.
    const written = (value) => (Math.round(100 * value) / 100 + 0).toFixed(2).replace("-", "−");
    const [f1, lift] = numbers.map((value) => (value === null ? "undefined" : written(value)));
    return `F1 ${f1} · lift ${lift}`;
  };

  let turn = 0; // of the latest drawing: an older one that is still decoding stops
  const draw = async () => {
    turn += 1;
    const mine = turn;
    const image = data.images[state.image];
    const source = await pixels(image.picture);
    const rows = [];
    for (const [index, model] of data.models.entries()) {
      if (!state.models.has(index)) continue;
      const chosen = data.methods.map((name, method) => [name, method]).filter(([, method]) => state.methods.has(method));
      const maps = await Promise.all(chosen.map(async ([, method]) => {
        const address = image.maps[index][method];
        return address === null ? null : valuesOf(await pixels(address));
      }));
      if (mine !== turn) return;
      const limit = sharedLimit(maps.filter((values) => values !== null), Number(contrast.value));
      const title = element("h4", { class: model.kind }, model.name, element("small", {}, ` ${model.training}${decision(image, index)}`));
      const row = element("div", { class: "row" }, title);
      row.style.setProperty("--columns", Math.min(chosen.length + 1, 5));
      const [plain, first] = tile(image, image.boxes.length ? "image and box" : "image", `${image.label}, ${image.id}`);
      plain.width = source.width;
      plain.height = source.height;
      plain.getContext("2d").putImageData(source, 0, 0);
      row.append(first);
      chosen.forEach(([name, method], column) => {
        const numbers = score(image.scores[index][method]);
        const caption = numbers ? `${name}: ${numbers}` : name;
        if (maps[column] === null) {
          row.append(missing(caption, "no map"));
          return;
        }
        const [canvas, made] = tile(image, caption, `${name} map of ${model.name}. ${numbers}`);
        paint(canvas, source, maps[column], limit);
        row.append(made);
      });
      rows.push(row);
    }
    if (mine !== turn) return;
    if (rows.length === 0) rows.push(element("p", { class: "note" }, "Choose a model and a method above."));
    sheet.replaceChildren(...rows);
    byId("shown").textContent = `Image ${state.image + 1} of ${data.images.length}: ${image.label}, ${image.id}`;
    sheet.dataset.drawn = String(mine);
  };

  choose = (index, focus) => {
    state.image = (index + data.images.length) % data.images.length;
    Array.from(list.children).forEach((item, position) => {
      const chosen = position === state.image;
      item.setAttribute("aria-selected", String(chosen));
      item.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) item.focus();
    });
    draw();
  };
  data.images.forEach((image, index) => {
    const picture = element("img", { src: image.picture, alt: "" });
    const item = element("li", { role: "option", id: `picture-${index}` }, picture, element("span", {}, image.label));
    item.addEventListener("click", () => choose(index, true));
    list.append(item);
  });
  list.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (event.key in steps) choose(state.image + steps[event.key], true);
    else if (event.key === "Home") choose(0, true);
    else if (event.key === "End") choose(data.images.length - 1, true);
    else return;
    event.preventDefault();
  });
  const boxesFor = (id, names, chosen) => {
    names.forEach((name, index) => {
      const box = element("input", { type: "checkbox", id: `${id}-${index}` });
      box.checked = chosen.has(index);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(index);
        else chosen.delete(index);
        draw();
      });
      byId(id).append(element("label", {}, box, name));
    });
  };
  boxesFor("models", data.models.map((model) => model.name), state.models);
  boxesFor("methods", data.methods, state.methods);
  contrast.addEventListener("input", () => {
    contrast.nextElementSibling.textContent = `${Number(contrast.value).toFixed(1)} %`;
    draw();
  });

  const scale = byId("scale");
  const context = scale.getContext("2d");
  const fade = context.createLinearGradient(0, 0, scale.width, 0);
  fade.addColorStop(0, `rgb(${data.negative.join(",")})`);
  fade.addColorStop(0.5, "white");
  fade.addColorStop(1, `rgb(${data.positive.join(",")})`);
  context.fillStyle = fade;
  context.fillRect(0, 0, scale.width, scale.height);
  choose(0, false);
})();
